// Forms that act in place: the same addresses and fields as without scripts, only no new page.

/**
 * Send every `data-enhance` form by script, from now on, however often the page's parts are replaced.
 * @param {(sent: boolean) => unknown} after called when a form was answered
 */
export function enhanceForms(after) {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.hasAttribute("data-enhance")) return;
    event.preventDefault();
    if (form.dataset.sending === "yes") return;
    form.dataset.sending = "yes";
    try {
      after(await send(form, new FormData(form, event.submitter)));
    } finally {
      delete form.dataset.sending;
    }
  });
}

/** Send a form by Enter from its fields that say so. */
export function enhanceFields() {
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLTextAreaElement) || !field.hasAttribute("data-enter-sends")) return;
    if (!sendsByKey(event)) return;
    event.preventDefault();
    field.form?.requestSubmit();
  });
}

/**
 * Whether a key pressed in a field of many lines means that it is to be sent.
 * @param {KeyboardEvent} event
 */
export function sendsByKey(event) {
  if (event.key !== "Enter" || event.isComposing) return false;
  if (event.ctrlKey || event.metaKey) return true;
  // On a touch keyboard Enter is the only way to a new line.
  return !event.shiftKey && matchMedia("(pointer: fine)").matches;
}

/**
 * Send a form and say on the page what went wrong, if anything.
 * @param {HTMLFormElement} form
 * @param {FormData} fields
 * @returns {Promise<boolean>} whether it was done
 */
export async function send(form, fields) {
  showProblem("");
  const withFiles = form.enctype === "multipart/form-data";
  const body = withFiles ? fields : new URLSearchParams();
  if (body instanceof URLSearchParams) for (const [name, value] of fields) body.append(name, String(value));
  try {
    const response = await fetch(form.action, {
      method: "POST",
      body,
      headers: { "X-Enhanced": "1" },
      credentials: "same-origin",
    });
    if (response.ok) return true;
    showProblem(await detailOf(response));
  } catch {
    showProblem("The server cannot be reached. Nothing you wrote is lost; try again.");
  }
  return false;
}

/** @param {Response} response */
async function detailOf(response) {
  try {
    return String((await response.json()).detail);
  } catch {
    return `The server answered ${response.status}. Try again.`;
  }
}

/** @param {string} text nothing hides it */
export function showProblem(text) {
  const banner = document.getElementById("send-problem");
  if (banner === null) return;
  banner.textContent = text;
  banner.hidden = text === "";
}
