/** The lines of the table of runs as elements. */

import { element } from "./dom.js";
import { ago, count, duration, moment, number, percent, whole } from "./format.js";
import { progressBar, sparkline, stateMark } from "./marks.js";

/** [key to sort by, title, class of its cells] */
export const COLUMNS = [
  ["name", "Run", "long"],
  ["state", "State", ""],
  ["env", "World", "long hide-narrow"],
  ["algorithm", "Algorithm", "hide-middle"],
  ["seed", "Seed", "right hide-middle"],
  ["step", "Steps", "right"],
  ["value", "Reached", "right"],
  [null, "Curve", "hide-narrow"],
  ["steps_per_second", "Steps/s", "right hide-narrow"],
  ["seconds_left", "Time", "right hide-narrow"],
  ["started", "Started", "right hide-narrow"],
  ["tags", "Tags", "tagged hide-middle"],
];

/**
 * The line of a run, or of a group of seeds.
 * @param {Object} row
 * @param {{isSelected: boolean, isOpen: boolean|null, isMember: boolean, select: function(boolean), fold: function()}} how
 *   `isOpen` is null for a line that is no group
 */
export function rowElement(row, how) {
  const label = row.seeds ? `${row.name} and ${row.seeds - 1} more seeds` : row.name;
  const box = element("input", { type: "checkbox", "aria-label": `Select ${label}` });
  box.checked = how.isSelected;
  box.addEventListener("change", () => how.select(box.checked));
  const cells = [
    nameCell(row, how),
    stateCell(row),
    row.env,
    row.algorithm,
    row.seeds ? `${row.seeds} seeds` : row.seed ?? "–",
    stepsCell(row),
    valueCell(row),
    sparkline(row.spark ?? []),
    count(row.steps_per_second),
    timeCell(row),
    element("span", { title: moment(row.started) }, ago(row.started)),
    element("span", { class: "tags" }, ...(row.tags ?? []).map((tag) => element("span", { class: "mark" }, tag))),
  ];
  return element("tr", { class: how.isMember ? "member" : null },
    element("td", { class: "select" }, box),
    ...cells.map((cell, place) => element("td", { class: COLUMNS[place][2] || null }, cell)));
}

function nameCell(row, how) {
  if (how.isOpen !== null) {
    const sign = element("span", { class: "fold", "aria-hidden": "true" }, how.isOpen ? "▾" : "▸");
    return element("button", { class: "plain row-link", "aria-expanded": String(how.isOpen), on: { click: how.fold } },
      sign, row.name, element("span", { class: "mark" }, `+ ${row.seeds - 1}`));
  }
  const link = element("a", { class: "row-link", href: `#/run/${encodeURIComponent(row.name)}` }, row.name);
  if (!row.parent) return link;
  return element("span", {}, link, " ", element("span", { class: "mark", title: `forked from ${row.parent}` }, "fork"));
}

function stateCell(row) {
  const mark = stateMark(row.state);
  if (row.problem) mark.title = row.problem;
  if (!row.seeds) return mark;
  const running = row.states.filter((state) => state === "running").length;
  const same = row.states.every((state) => state === row.state);
  return element("span", {}, mark, same ? "" : ` ${running || row.states.filter((s) => s === row.state).length} of ${row.seeds}`);
}

function stepsCell(row) {
  const share = row.step && row.total ? row.step / row.total : 0;
  return element("div", { class: "steps", title: `${whole(row.step)} of ${whole(row.total)}` },
    element("span", {}, count(row.step)),
    row.state === "running" || share < 1 ? element("span", { class: "quiet" }, ` ${percent(Math.min(1, share))}`) : null,
    row.state === "running" ? progressBar(share, `progress of ${row.name}`) : null);
}

function valueCell(row) {
  const unit = row.metric !== "return" ? element("span", { class: "quiet" }, ` ${row.metric}`) : null;
  const range = row.seeds && row.low !== null && row.low !== row.high
    ? element("span", { class: "quiet range" }, ` ${number(row.low)} to ${number(row.high)}`) : null;
  return element("span", {}, number(row.value), unit, range);
}

function timeCell(row) {
  if (row.state === "running") return row.seconds_left === null ? "–" : `${duration(row.seconds_left)} left`;
  return row.elapsed ? element("span", { class: "quiet" }, `took ${duration(row.elapsed)}`) : "–";
}
