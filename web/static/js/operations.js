// Operations: looks again every few seconds while the page is on screen.
import { enhanceForms } from "./forms.js";
import { refresh, rememberServed } from "./fragment.js";

const LOOK_MS = 3000;

function problems() {
  return document.querySelector('[data-region="operations"]')?.getAttribute("data-problems") ?? "0";
}

async function read() {
  const before = problems();
  await refresh("/operations/fragment").catch(() => undefined);
  const now = problems();
  const announce = document.getElementById("announce");
  if (announce && now !== before) announce.textContent = now === "0" ? "Everything works" : `${now} ${now === "1" ? "problem" : "problems"}`;
}

rememberServed();
enhanceForms(read);
setInterval(() => document.hidden || read(), LOOK_MS);
