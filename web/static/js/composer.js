import { send, sendsByKey } from "./forms.js";

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
  const plan = /** @type {HTMLInputElement | null} */ (form.elements.namedItem("plan_mode"));
  const draft = new Draft(`celeriac-draft-${session}`, field, id, plan);
  draft.load();
  form.addEventListener("input", () => draft.save());
  field.addEventListener("keydown", (event) => {
    if (sendsByKey(event)) {
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
    if (sent) draft.start();
    after();
  });
}

/** What is being written, kept in this tab: a reload must neither lose it nor forget that it is only to be planned. */
class Draft {
  /**
   * @param {string} name
   * @param {HTMLTextAreaElement} field
   * @param {HTMLInputElement} id
   * @param {HTMLInputElement | null} plan
   */
  constructor(name, field, id, plan) {
    this.name = name;
    this.field = field;
    this.id = id;
    this.plan = plan;
  }

  load() {
    const { id, text, plan } = JSON.parse(sessionStorage.getItem(this.name) ?? "{}");
    if (!text || this.field.value !== "") return;
    this.field.value = text;
    this.id.value = id;
    if (this.plan) this.plan.checked = plan;
  }

  save() {
    const kept = { id: this.id.value, text: this.field.value, plan: this.plan?.checked ?? false };
    sessionStorage.setItem(this.name, JSON.stringify(kept));
  }

  /** Begin the next message. */
  start() {
    this.field.value = "";
    if (this.plan) this.plan.checked = false;
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    this.id.value = `msg_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    sessionStorage.removeItem(this.name);
  }
}
