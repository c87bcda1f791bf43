// The only place where text from the server becomes HTML, through the one policy that the page allows.
import { localTimes } from "./times.js";

const types = /** @type {any} */ (globalThis).trustedTypes; // not yet in every browser
/** @type {{ createHTML(html: string): string }} */
const policy =
  types?.createPolicy("fragment", { createHTML: (/** @type {string} */ html) => html }) ??
  { createHTML: (html) => html };

/** What the server sent for each element, before scripts changed anything in it. @type {WeakMap<Element, string>} */
const served = new WeakMap();

/** Remember the page as it was served. Call it before anything changes the page. */
export function rememberServed() {
  for (const element of document.querySelectorAll("[data-region], [data-region] [data-key]")) {
    served.set(element, element.outerHTML);
  }
}

/**
 * Fetch a fragment that the server rendered and put its regions in place of the old ones.
 * @param {string} address
 * @returns {Promise<Response>} the response, for its status
 */
export async function refresh(address) {
  const response = await fetch(address, { headers: { "X-Enhanced": "1" }, credentials: "same-origin" });
  if (response.ok) apply(await response.text());
  return response;
}

/** @param {string} html */
function apply(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  for (const region of template.content.querySelectorAll("[data-region]")) {
    const old = document.querySelector(`[data-region="${region.getAttribute("data-region")}"]`);
    if (old) update(old, region);
  }
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function update(old, fresh) {
  const keyed = fresh.querySelector(":scope > [data-key]") ?? old.querySelector(":scope > [data-key]");
  if (keyed === null) return replace(old, fresh);
  copyAttributes(old, fresh);
  const known = new Map([...old.children].map((child) => [child.getAttribute("data-key"), child]));
  const kept = new Set([...fresh.children].map((child) => child.getAttribute("data-key")));
  // First of all, or everything after one that is gone would be moved before it.
  for (const [key, gone] of known) if (!kept.has(key)) gone.remove();
  let place = old.firstElementChild;
  for (const child of [...fresh.children]) {
    const before = known.get(child.getAttribute("data-key"));
    if (before === undefined) {
      old.insertBefore(adopt(child), place);
      continue;
    }
    if (before === place) place = before.nextElementSibling;
    else old.insertBefore(before, place);
    replace(before, child);
  }
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function copyAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) old.setAttribute(name, value);
}

/**
 * Replace an element if the server's words for it have changed; keep what the reader opened and focused.
 * @param {Element} old
 * @param {Element} fresh
 */
function replace(old, fresh) {
  if (served.get(old) === fresh.outerHTML) return;
  const focused = old.contains(document.activeElement);
  const opened = [...old.querySelectorAll("details")].map((details) => details.open);
  adopt(fresh);
  [...fresh.querySelectorAll("details")].forEach((details, index) => {
    details.open = opened[index] ?? details.open;
  });
  old.replaceWith(fresh);
  if (focused && fresh instanceof HTMLElement) {
    // The button that had the focus is gone with its form; its card keeps the reader's place.
    if (!fresh.hasAttribute("tabindex")) fresh.tabIndex = -1;
    fresh.focus({ preventScroll: true });
  }
}

/** @param {Element} fresh */
function adopt(fresh) {
  served.set(fresh, fresh.outerHTML);
  for (const child of fresh.querySelectorAll("[data-key]")) served.set(child, child.outerHTML);
  localTimes(fresh);
  return fresh;
}
