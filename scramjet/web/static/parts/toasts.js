/** Messages that stand at the bottom of the page for a while. */

import { element } from "./dom.js";

const SECONDS = 8;

/** Show a message: an "error" or a "note". The same text is not shown twice at once. */
export function toast(text, kind = "note") {
  const place = document.getElementById("toasts");
  if ([...place.children].some((each) => each.dataset.text === text)) return;
  const close = element("button", { class: "plain", "aria-label": "Dismiss" }, "×");
  const box = element("div", { class: `toast ${kind}`, "data-text": text }, element("span", {}, text), close);
  const timer = setTimeout(() => box.remove(), SECONDS * 1000);
  close.addEventListener("click", () => {
    clearTimeout(timer);
    box.remove();
  });
  place.append(box);
}
