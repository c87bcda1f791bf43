const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const HOUR_MS = 3_600_000;

/**
 * Show every time below `root` in the reader's own zone; without this they read in UTC and say so.
 * @param {ParentNode} root
 */
export function localTimes(root) {
  for (const element of root.querySelectorAll("time[data-time]")) show(element);
}

/** Keep every time that is counted down to up to date. */
export function countDown() {
  setInterval(() => document.querySelectorAll('time[data-time="until"]').forEach(show), 1000);
}

/** @param {Element} element */
function show(element) {
  const moment = new Date(element.getAttribute("datetime") ?? "");
  if (Number.isNaN(moment.getTime())) return;
  const words = inWords(moment, element.getAttribute("data-time") ?? "");
  if (element.textContent === words) return;
  element.textContent = words;
  element.setAttribute("title", EXACT.format(moment));
}

/**
 * @param {Date} moment
 * @param {string} kind `clock`, `day`, `moment` (near now), or `until` (near now, and how long it is until then)
 */
function inWords(moment, kind) {
  if (kind === "clock") return CLOCK.format(moment);
  if (kind === "day") return DAY.format(moment);
  const near = shortly(moment);
  return kind === "until" ? `${near}, ${remaining(moment.getTime() - Date.now())}` : near;
}

/** @param {Date} moment */
function shortly(moment) {
  return Math.abs(moment.getTime() - Date.now()) < 12 * HOUR_MS ? SECONDS.format(moment) : DAY.format(moment);
}

/** @param {number} ms */
function remaining(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds <= 0) return "any moment now";
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86_400)];
  if (minutes === 0) return `in ${seconds} s`;
  if (hours === 0) return `in ${minutes} min ${seconds % 60} s`;
  if (days === 0) return `in ${hours} h ${minutes % 60} min`;
  return `in ${days} day${days === 1 ? "" : "s"} ${hours % 24} h`;
}
