// One session's page: follows its events, shows text as it is written, and reads the rest anew from the server.
import { enhanceComposer } from "./composer.js";
import { enhanceFields, enhanceForms } from "./forms.js";
import { refresh, rememberServed } from "./fragment.js";
import { EventFeed } from "./stream.js";
import { LiveText } from "./transcript.js";

const CONNECTION = { live: "live", reconnecting: "reconnecting…", paused: "paused", polling: "checking every 5 seconds" };

/**
 * Whether what was streamed is now a message, so that the next reading of the page has it.
 * @param {string} type
 * @param {any} data
 */
function storesText(type, data) {
  if (type === "step.ended") return data.name === "RunModel" && data.status === "succeeded";
  return type === "turn.ended" || (type === "message.added" && data.role === "assistant");
}

/** Keeps the page like the server's view of it, one read at a time. */
class SessionView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.id = /** @type {string} */ (root.dataset.session);
    this.live = new LiveText();
    /** @type {Promise<void> | null} */
    this.reading = null;
    this.stale = false;
    this.connection = "";
    this.sentence = this.words();
  }

  state() {
    return /** @type {HTMLElement} */ (document.querySelector('[data-region="state"]'));
  }

  /** What the page says the session is doing. */
  words() {
    return this.state().querySelector(".state__sentence")?.textContent ?? "";
  }

  /** Read the page anew; calls during a read lead to one more read after it. */
  read() {
    this.stale = true;
    this.reading ??= this.readWhileStale().finally(() => (this.reading = null));
    return this.reading;
  }

  async readWhileStale() {
    while (this.stale) {
      this.stale = false;
      const stored = this.live.stored;
      const follow = this.live.atEnd();
      const response = await refresh(`/sessions/${this.id}/fragment`);
      // Access or the session itself is gone: the server's own page says so best, and has no script of ours.
      if ([401, 403, 404].includes(response.status)) location.reload();
      if (!response.ok) throw new Error(`fragment: ${response.status}`);
      if (stored && this.live.stored) this.live.clear("");
      this.tell();
      this.live.settle(follow);
    }
  }

  tell() {
    const attention = this.state().dataset.attention === "yes";
    const sentence = this.words();
    document.getElementById("composer")?.classList.toggle("composer--small", attention);
    this.showConnection(this.connection);
    if (sentence === this.sentence) return;
    this.sentence = sentence;
    const announce = document.getElementById("announce");
    if (announce) announce.textContent = sentence;
  }

  /** @param {string} words */
  showConnection(words) {
    this.connection = words;
    const place = document.getElementById("connection");
    if (place) place.textContent = words;
  }

  /**
   * @param {string} type
   * @param {any} data
   */
  onEvent(type, data) {
    if (type === "text.delta") return this.live.append("text", data);
    if (type === "reasoning.delta") return this.live.append("reasoning", data);
    if (type === "tool.progress") return;
    if (type === "text.withdrawn") this.live.clear("");
    if (storesText(type, data)) this.live.stored = true;
    this.read().catch(() => this.showConnection(CONNECTION.reconnecting));
  }
}

const root = document.getElementById("session");
if (root !== null && root.dataset.live === "yes") {
  rememberServed();
  const view = new SessionView(root);
  const told = {
    onEvent: view.onEvent.bind(view),
    onState: (/** @type {keyof typeof CONNECTION} */ state) => view.showConnection(CONNECTION[state]),
    onGap: async () => {
      view.live.clear("");
      await view.read();
      return view.state().dataset.resumeToken ?? "";
    },
  };
  const read = () => view.read().catch(() => undefined);
  enhanceForms(read);
  enhanceFields();
  enhanceComposer(view.id, read);
  new EventFeed(`/api/sessions/${view.id}/events`, told, view.state().dataset.resumeToken ?? "").open();
  if (location.hash === "") view.live.toEnd();
}
