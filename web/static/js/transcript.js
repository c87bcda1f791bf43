// The text that is being written, as text nodes, until the server's rendering of it takes its place.

// Characters that hide or reorder; joiners are left until the server's rendering tells which of them join.
const HIDDEN = /(?![\u200c\u200d])[\p{Cf}\p{Co}]/gu;

/** @param {string} text */
function writtenOut(text) {
  return text.replace(HIDDEN, (one) => `U+${one.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`);
}

/** Shows what streams in, and keeps the reader at the end if that is where they are. */
export class LiveText {
  constructor() {
    this.box = /** @type {HTMLElement} */ (document.getElementById("live"));
    this.folded = /** @type {HTMLElement} */ (document.getElementById("live-reasoning"));
    this.text = /** @type {HTMLElement} */ (this.box.querySelector('[data-live="text"]'));
    this.reasoning = /** @type {HTMLElement} */ (this.box.querySelector('[data-live="reasoning"]'));
    this.latest = /** @type {HTMLElement} */ (document.getElementById("latest"));
    this.step = "";
    /** What came since the last frame: each look at the page's height makes the browser lay it out anew. */
    this.pending = { text: "", reasoning: "" };
    this.frame = 0;
    /** Whether the message is stored, so that the next rendering replaces this text. */
    this.stored = false;
    this.latest.addEventListener("click", () => this.toEnd());
    addEventListener("scroll", () => this.showLatest(), { passive: true });
  }

  /**
   * @param {"text" | "reasoning"} kind
   * @param {{ step_id: string, attempt: number, text: string }} data
   */
  append(kind, data) {
    const step = `${data.step_id}/${data.attempt}`;
    if (step !== this.step) this.clear(step);
    this.pending[kind] += data.text;
    this.frame ||= requestAnimationFrame(() => this.show());
  }

  show() {
    this.frame = 0;
    const { text, reasoning } = this.pending;
    if (text === "" && reasoning === "") return;
    this.pending = { text: "", reasoning: "" };
    const follow = this.atEnd();
    this.box.hidden = false;
    if (reasoning !== "") this.folded.hidden = false;
    this.text.append(writtenOut(text));
    this.reasoning.append(writtenOut(reasoning));
    this.settle(follow);
  }

  /** @param {string} step the step whose text comes next */
  clear(step) {
    this.step = step;
    this.stored = false;
    this.pending = { text: "", reasoning: "" };
    this.box.hidden = true;
    this.folded.hidden = true;
    this.text.replaceChildren();
    this.reasoning.replaceChildren();
  }

  atEnd() {
    const page = document.documentElement;
    return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
  }

  toEnd() {
    scrollTo({ top: document.documentElement.scrollHeight });
    this.showLatest();
  }

  /** @param {boolean} follow whether the reader was at the end before the page grew */
  settle(follow) {
    if (follow) this.toEnd();
    else this.showLatest();
  }

  showLatest() {
    this.latest.hidden = this.atEnd();
  }
}
