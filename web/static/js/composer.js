import { send } from "./forms.js";

/**
 * Send messages in place. A draft is kept in this tab with the id its message will have, so that a retry or a
 * double click is one message.
 * @param {string} session
 * @param {() => unknown} after called when a message was taken
 */
export function enhanceComposer(session, after) {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById("composer"));
  if (form === null) return;
  const field = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("text"));
  const id = /** @type {HTMLInputElement} */ (form.elements.namedItem("message_id"));
  const draft = new Draft(`celeriac-draft-${session}`);
  draft.load(field, id);
  field.addEventListener("input", () => draft.save(field, id));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing && sends(event)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (field.value.trim() === "" || field.readOnly) return;
    field.readOnly = true; // kept as it is while it is sent, and the focus stays
    const sent = await send(form, new FormData(form));
    field.readOnly = false;
    if (sent) draft.start(field, id);
    after();
  });
}

/** @param {KeyboardEvent} event */
function sends(event) {
  if (event.ctrlKey || event.metaKey) return true;
  // On a touch keyboard Enter is the only way to a new line.
  return !event.shiftKey && matchMedia("(pointer: fine)").matches;
}

class Draft {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }

  /** @param {HTMLTextAreaElement} field @param {HTMLInputElement} id */
  load(field, id) {
    const [storedId, text] = (sessionStorage.getItem(this.name) ?? "").split(/:(.*)/s);
    if (!text || field.value !== "") return;
    field.value = text;
    id.value = storedId;
  }

  /** @param {HTMLTextAreaElement} field @param {HTMLInputElement} id */
  save(field, id) {
    sessionStorage.setItem(this.name, `${id.value}:${field.value}`);
  }

  /** Begin the next message. @param {HTMLTextAreaElement} field @param {HTMLInputElement} id */
  start(field, id) {
    field.value = "";
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    id.value = `msg_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    sessionStorage.removeItem(this.name);
  }
}
