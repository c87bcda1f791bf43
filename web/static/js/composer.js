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
  const images = new Images(form, field);
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
    if ((field.value.trim() === "" && images.empty) || field.readOnly) return;
    field.readOnly = true; // kept as it is while it is sent, and the focus stays
    const sent = await send(form, new FormData(form));
    field.readOnly = false;
    if (sent) {
      draft.start();
      images.clear();
    }
    after();
  });
}

/** The images of the next message: chosen, pasted or dropped, each to be taken out again. */
class Images {
  /**
   * @param {HTMLFormElement} form
   * @param {HTMLTextAreaElement} field
   */
  constructor(form, field) {
    this.input = /** @type {HTMLInputElement | null} */ (form.querySelector("input[type=file]"));
    this.list = /** @type {HTMLElement | null} */ (document.getElementById("chosen-images"));
    this.input?.addEventListener("change", () => this.show());
    field.addEventListener("paste", (event) => this.take(event, event.clipboardData));
    form.addEventListener("dragover", (event) => event.preventDefault());
    form.addEventListener("drop", (event) => this.take(event, event.dataTransfer));
  }

  get files() {
    return [...(this.input?.files ?? [])];
  }

  get empty() {
    return this.files.length === 0;
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} transfer
   */
  take(event, transfer) {
    const found = [...(transfer?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (found.length === 0) return;
    event.preventDefault();
    this.set([...this.files, ...found]);
  }

  /** @param {File[]} files */
  set(files) {
    if (this.input === null) return;
    const transfer = new DataTransfer();
    for (const file of files) transfer.items.add(file);
    this.input.files = transfer.files;
    this.show();
  }

  clear() {
    this.set([]);
  }

  show() {
    if (this.list === null) return;
    this.list.replaceChildren(...this.files.map((file, at) => this.row(file, at)));
    this.list.hidden = this.empty;
  }

  /**
   * @param {File} file
   * @param {number} at
   */
  row(file, at) {
    const row = document.createElement("li");
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "button button--small";
    remove.textContent = "Remove";
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.addEventListener("click", () => this.set(this.files.filter((_, other) => other !== at)));
    row.append(`${file.name} (${Math.max(1, Math.round(file.size / 1024)).toLocaleString()} kB) `, remove);
    return row;
  }
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
