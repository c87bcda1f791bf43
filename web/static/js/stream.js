const POLL_MS = 5000;
const RETRY_STREAM_AFTER_POLLS = 6;

/**
 * Follow a session's events. Closed while the tab is hidden; polls while the server has no stream to give.
 * Events are hints: `onEvent` may miss some, and `onGap` says when the page must be read anew.
 */
export class EventFeed {
  /**
   * @param {string} address
   * @param {{ onEvent(type: string, data: any): void, onGap(): Promise<string>, onState(state: string): void }} told
   * @param {string} token where to start
   */
  constructor(address, told, token) {
    this.address = address;
    this.told = told;
    this.token = token;
    /** @type {EventSource | null} */
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.resume()));
    addEventListener("pagehide", () => this.close());
  }

  open() {
    this.close();
    const source = new EventSource(`${this.address}?resume_token=${encodeURIComponent(this.token)}`);
    this.source = source;
    source.onopen = () => this.told.onState("live");
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.poll(0);
      else this.told.onState("reconnecting");
    };
    source.addEventListener("reload", () => this.resume());
    for (const type of TYPES) {
      source.addEventListener(type, (event) => {
        this.token = event.lastEventId || this.token;
        this.told.onEvent(type, JSON.parse(event.data));
      });
    }
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  pause() {
    this.close();
    this.told.onState("paused");
  }

  /** Read the page anew and go on from there. */
  async resume() {
    this.close();
    try {
      this.token = await this.told.onGap();
      this.open();
    } catch {
      this.poll(0);
    }
  }

  /** @param {number} times */
  poll(times) {
    this.close();
    this.told.onState("polling");
    this.timer = setTimeout(async () => {
      try {
        this.token = await this.told.onGap();
        if (times + 1 >= RETRY_STREAM_AFTER_POLLS) return this.open();
      } catch {
        this.told.onState("reconnecting");
      }
      if (this.source === null && !document.hidden) this.poll(times + 1);
    }, POLL_MS);
  }
}

const TYPES = [
  "text.delta", "reasoning.delta", "text.withdrawn", "step.started", "step.ended", "call.updated",
  "tool.progress", "message.added", "queue.changed", "plan.changed",
  "turn.started", "turn.ended",
];
