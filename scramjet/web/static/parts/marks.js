/** Small parts that several views show: the state of a run, progress, a small curve. */

import { element, svg } from "./dom.js";

const SIGNS = { running: "●", finished: "✓", stopped: "■", killed: "✕", damaged: "!", pending: "…" };
const MEANINGS = {
  running: "a process trains it now",
  finished: "reached its total of steps",
  stopped: "ended in order before its total; it can be resumed",
  killed: "ended without a last checkpoint: a kill or a crash; it can be resumed from the last one",
  damaged: "its files cannot be read",
  pending: "being read",
};

/** The state of a run: a sign, a word and a colour. */
export function stateMark(state) {
  const name = state in SIGNS ? state : "pending";
  return element("span", { class: `mark ${name === "damaged" ? "bad" : name}`, title: MEANINGS[name] },
    element("span", { "aria-hidden": "true" }, SIGNS[name]), element("span", {}, state));
}

/** A bar of progress from 0 to 1, with its label for those who do not see it. */
export function progressBar(share, label) {
  const width = Math.round(100 * Math.min(1, Math.max(0, share || 0)));
  return element("div", { class: "progress", role: "progressbar", "aria-label": label, "aria-valuenow": width },
    element("span", { style: `width: ${width}%` }));
}

/** A small curve of some numbers; decoration, since the numbers stand beside it. */
export function sparkline(numbers, width = 72, height = 20) {
  const drawing = svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (numbers.length < 2) return drawing;
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const points = numbers.map((value, place) => {
    const x = 1 + (place * (width - 2)) / (numbers.length - 1);
    const y = high === low ? height / 2 : height - 2 - ((value - low) / (high - low)) * (height - 4);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  drawing.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
  return drawing;
}
