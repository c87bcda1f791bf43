// The inbox: decides in place and looks for new entries while it is on screen.
import { enhanceForms } from "./forms.js";
import { refresh, rememberServed } from "./fragment.js";

const LOOK_MS = 5000;

function count() {
  return document.querySelector('[data-region="inbox"]')?.getAttribute("data-count") ?? "0";
}

async function read() {
  const before = count();
  await refresh("/approvals/fragment").catch(() => undefined);
  const now = count();
  document.title = `${now === "0" ? "" : `(${now}) `}Approvals · Celeriac`;
  const announce = document.getElementById("announce");
  if (announce && now !== before) announce.textContent = now === "0" ? "Nothing needs you" : `${now} need you`;
}

rememberServed();
enhanceForms(async (sent) => {
  await read();
  if (sent) /** @type {HTMLElement | null} */ (document.querySelector(".inbox [data-card]"))?.focus();
});
setInterval(() => document.hidden || read(), LOOK_MS);
