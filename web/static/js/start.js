// The form that starts a session, and every other form that leads to a new page.

/** Offer only what the chosen agent has: its models, and plan mode; without this the server says when the two do not fit. */
export function matchFormToAgent() {
  const agent = /** @type {HTMLSelectElement | null} */ (document.getElementById("agent"));
  const model = /** @type {HTMLSelectElement | null} */ (document.getElementById("model"));
  const plan = document.getElementById("plan-first");
  if (agent === null || model === null) return;
  const match = () => {
    for (const group of model.querySelectorAll("optgroup")) {
      group.hidden = group.disabled = group.label !== agent.value;
    }
    if (plan) {
      plan.hidden = !agent.selectedOptions[0]?.hasAttribute("data-plan-mode");
      /** @type {HTMLInputElement} */ (plan.querySelector("input")).disabled = plan.hidden;
    }
    const chosen = model.selectedOptions[0]?.parentElement;
    if (chosen instanceof HTMLOptGroupElement && chosen.disabled) model.value = "";
  };
  agent.addEventListener("change", match);
  match();
}

/** Send a form once, however often its button is pressed before the new page is there. */
export function sendOnce() {
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (event.defaultPrevented || form.method !== "post") return;
    if (form.dataset.sent === "yes") event.preventDefault();
    form.dataset.sent = "yes";
  });
  // Back to a page that the browser kept: its forms are new again.
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) form.removeAttribute("data-sent");
  });
}
