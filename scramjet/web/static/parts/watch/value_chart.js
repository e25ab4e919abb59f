/** The value of each player over the steps of one episode: a small chart of lines. */

import { element, setText, svg } from "../dom.js";
import { number } from "../format.js";

const WIDTH = 320;
const HEIGHT = 110;
const MOST_POINTS = 800;
const COLOURS = 8;

/** @returns {{node: HTMLElement, clear: function(string[]), add: function(number, {player: number, value: ?number}[])}} */
export function makeValueChart() {
  const lines = svg("g", { fill: "none" });
  const zero = svg("line", { class: "chart-zero", x1: 0, x2: WIDTH });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, zero, lines);
  const [top, bottom] = [element("span"), element("span")];
  const legend = element("div", { class: "chart-legend" });
  const node = element("div", { class: "value-chart" },
    element("div", { class: "chart-box" }, element("div", { class: "chart-scale quiet" }, top, bottom), drawing), legend);
  let series = [];
  let labels = [];
  let waits = false;

  function clear(names) {
    series = names.map(() => []);
    const isSame = names.length === labels.length && names.every((name, player) => name === labels[player]);
    if (!isSame) {
      labels = names;
      lines.replaceChildren(...names.map((_, player) => svg("polyline", { stroke: `var(--curve-${(player % COLOURS) + 1})` })));
      legend.replaceChildren(...(names.length > 1 ? names.map(labelled) : []));
    }
    draw();
  }

  function add(step, values) {
    for (const { player, value } of values) {
      if (value === null || !series[player]) continue;
      series[player].push([step, value]);
      if (series[player].length > MOST_POINTS) series[player] = series[player].filter((_, place) => place % 2 === 0);
    }
    if (waits) return;
    waits = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    waits = false;
    const points = series.flat();
    const values = points.map(([, value]) => value);
    let [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    if (low === high) [low, high] = [low - 1, high + 1];
    const last = Math.max(1, ...points.map(([step]) => step));
    const y = (value) => 4 + ((HEIGHT - 8) * (high - value)) / (high - low);
    series.forEach((each, player) => lines.children[player]?.setAttribute("points",
      (each.length === 1 ? [...each, ...each] : each).map(([step, value]) => `${((step / last) * WIDTH).toFixed(1)},${y(value).toFixed(1)}`).join(" ")));
    [...legend.children].forEach((label, player) => (label.hidden = series[player].length === 0));
    for (const name of ["y1", "y2"]) zero.setAttribute(name, y(0).toFixed(1));
    setText(top, points.length ? number(high) : "");
    setText(bottom, points.length ? number(low) : "");
    drawing.setAttribute("aria-label", spoken(values));
  }

  function spoken(values) {
    return values.length ? `Value over the episode, now ${number(values.at(-1))}` : "Value over the episode, none yet";
  }

  return { node, clear, add };
}

function labelled(name, player) {
  const colour = element("i", { style: `background: var(--curve-${(player % COLOURS) + 1})` });
  return element("span", {}, colour, name);
}
