const SETTING = "celeriac-single-keys";

/** Listen to the keys that the dialog lists. None works inside a field; each can be switched off there. */
export function listenToKeys() {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("keys"));
  const box = /** @type {HTMLInputElement} */ (document.getElementById("keys-on"));
  box.checked = localStorage.getItem(SETTING) !== "off";
  box.addEventListener("change", () => localStorage.setItem(SETTING, box.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") return leaveField();
    if (inField(event.target) || dialog.open) return;
    if (event.key === "?") return dialog.showModal();
    if (box.checked && act(event.key, event.target)) event.preventDefault();
  });
}

function leaveField() {
  if (inField(document.activeElement)) /** @type {HTMLElement} */ (document.activeElement).blur();
}

/** @param {EventTarget | null} target */
function inField(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

/**
 * @param {string} key
 * @param {EventTarget | null} target
 * @returns {boolean} whether the key meant something here
 */
function act(key, target) {
  if (key === "j" || key === "k") return move(key === "j" ? 1 : -1);
  const card = document.activeElement?.closest("[data-card]") ?? null;
  if (card === null) return false;
  if (key === "Enter" && target === card) return open(card);
  if (key === "a" || key === "r") return decide(card, key === "a" ? "approve" : "reject");
  return false;
}

/** @param {1 | -1} direction */
function move(direction) {
  const cards = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-card]")]);
  const here = cards.findIndex((card) => card.contains(document.activeElement));
  const first = direction === 1 ? 0 : cards.length - 1;
  const next = cards[here === -1 ? first : here + direction];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return next !== undefined;
}

/** @param {Element} card */
function open(card) {
  if (card instanceof HTMLAnchorElement) return false; // the browser follows it
  const folded = card.querySelector("details");
  if (folded) folded.open = !folded.open;
  return folded !== null;
}

/**
 * Press the button of the focused card, and of no other.
 * @param {Element} card
 * @param {string} decision
 */
function decide(card, decision) {
  const button = card.querySelector(`[data-approval] button[value="${decision}"]`);
  if (button instanceof HTMLButtonElement && !button.disabled) button.click();
  return button !== null;
}
