/** What the Compare view shows of an answer of /api/compare: traces of a plot, its legend, and tables. */

import { element, svg } from "./dom.js";
import { count, durationInTenths, number } from "./format.js";
import { stateMark } from "./marks.js";
import { curveColours } from "./plots.js";

const DASHES = [["solid", null], ["dash", "7 4"], ["dot", "2 3"]]; // plotly's word, SVG's
const FEW_POINTS = 3; // a line through one point is invisible

function styleOf(place) {
  const colours = curveColours();
  const [dash, strokes] = DASHES[Math.floor(place / colours.length) % DASHES.length];
  return { colour: colours[place % colours.length], dash, strokes };
}

/** Plotly's traces of a panel: each interval as a shape behind its line. */
export function tracesOf(panel) {
  return panel.series.flatMap((series) => {
    const { colour, dash } = styleOf(series.number);
    const line = {
      type: "scatter", mode: series.x.length <= FEW_POINTS ? "lines+markers" : "lines", name: escaped(series.label),
      x: series.x, y: series.y, line: { color: colour, dash, width: 2 }, hovertemplate: "%{y:.4~g}",
    };
    return series.low ? [intervalOf(series, colour), line] : [line];
  });
}

function intervalOf(series, colour) {
  const inside = series.x.map((_, place) => place).filter((place) => series.low[place] !== null);
  const back = [...inside].reverse();
  return {
    type: "scatter", mode: "lines", fill: "toself", fillcolor: `${colour}2e`, line: { width: 0, color: colour },
    hoverinfo: "skip", x: [...inside, ...back].map((place) => series.x[place]),
    y: [...inside.map((place) => series.low[place]), ...back.map((place) => series.high[place])],
  };
}

/** Plotly reads some HTML in names: a "<" in a label stays one. */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** The layout of a panel. */
export function layoutOf(panel) {
  return {
    margin: { l: 8, r: 8, t: 8, b: 8 },
    xaxis: { title: { text: panel.x_title, standoff: 8 } },
    yaxis: { title: { text: escaped(panel.y_title), standoff: 8 } },
  };
}

/** A list of the contenders with the look of their lines. */
export function legendOf(contenders) {
  return element("ul", { class: "compare-legend" }, contenders.map(({ label, runs }, place) =>
    element("li", { title: runs.join(", ") }, swatch(place), runs.length > 1 ? `${label} (${runs.length} runs)` : label)));
}

function swatch(place) {
  const { colour, strokes } = styleOf(place);
  return svg("svg", { width: 28, height: 8, "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 4, x2: 28, y2: 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": strokes }));
}

/** Final numbers: a row for each measure, a column for each contender. */
export function numbersTable(contenders) {
  const names = [...new Set(contenders.flatMap((each) => Object.keys(each.numbers)))];
  const states = row("state", contenders.map((each) => element("td", {}, each.states.map(stateMark))));
  const measures = names.map((name) => row(shownName(name), contenders.map((each) => cell(name, each.numbers[name]))));
  return table("Final numbers", contenders, [states, ...measures]);
}

/** Settings that differ: a row for each, a column for each contender. */
export function differencesTable(differences, contenders) {
  const rows = Object.entries(differences).map(([name, values]) =>
    row(name, values.map((value) => element("td", {}, value))));
  return table("Settings that differ", contenders, rows);
}

function table(caption, contenders, rows) {
  const heads = contenders.map((each, place) => element("th", { scope: "col" }, swatch(place), " ", each.label));
  // Focusable, for it scrolls sideways where it is wider than the page.
  return element("div", { class: "table-box", role: "region", "aria-label": caption, tabindex: 0 }, element("table", {},
    element("thead", {}, element("tr", {}, element("td", {}), heads)), element("tbody", {}, rows)));
}

function row(name, cells) {
  return element("tr", {}, element("th", { scope: "row" }, name), cells);
}

function shownName(name) {
  return name.replace("seconds to", "time to").replace("seconds", "wall time");
}

function cell(name, estimate) {
  if (!estimate) return element("td", {}, "–");
  const shown = name.startsWith("seconds") ? durationInTenths : name.startsWith("steps") ? count : number;
  const [low, high] = [shown(estimate.low), shown(estimate.high)];
  const interval = estimate.low === null || low === high ? null : `${low} to ${high}`;
  return element("td", {}, shown(estimate.value),
    interval && element("span", { class: "compare-interval", title: "95 % interval" }, interval));
}
