const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/**
 * Show every time below `root` in the reader's own zone; without this they read in UTC and say so.
 * @param {ParentNode} root
 */
export function localTimes(root) {
  for (const element of root.querySelectorAll("time[data-time]")) {
    const moment = new Date(element.getAttribute("datetime") ?? "");
    if (Number.isNaN(moment.getTime())) continue;
    const format = element.getAttribute("data-time") === "clock" ? CLOCK : DAY;
    element.textContent = format.format(moment);
    element.setAttribute("title", DAY.format(moment));
  }
}
