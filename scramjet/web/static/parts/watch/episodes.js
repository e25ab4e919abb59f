/** The episodes that were watched to their end, the last one first; any of them can be played again. */

import { element, replace, setText } from "../dom.js";
import { number, whole } from "../format.js";

const MOST_LISTED = 50;

/** @returns {{node: HTMLElement, begin: function(Object), add: function(Object)}} `replay(seed)` plays one again */
export function makeEpisodes(replay) {
  const summary = element("p", { class: "quiet" });
  const head = element("tr");
  const rows = element("tbody");
  const table = element("div", { class: "table-box", hidden: true },
    element("table", {}, element("thead", {}, head), rows));
  const node = element("div", { class: "episodes" }, summary, table);
  let ended = [];
  let who = "";

  /** Episodes of other players or another checkpoint are another list. */
  function begin(ready) {
    const now = JSON.stringify([ready.checkpoint, ready.against, ready.search, ready.samples]);
    if (now === who) return;
    who = now;
    ended = [];
    rows.replaceChildren();
    table.hidden = true;
    const result = ready.num_players > 1 ? "Result" : "Return";
    replace(head, ...["Seed", "Steps", result].map((title) => element("th", { scope: "col" }, title)));
    setText(summary, "None has ended yet.");
  }

  function add(frame) {
    ended.push(frame.returns);
    rows.prepend(row(frame));
    if (rows.children.length > MOST_LISTED) rows.lastElementChild.remove();
    table.hidden = false;
    const means = frame.returns.map((_, player) => ended.reduce((sum, each) => sum + each[player], 0) / ended.length);
    const of = frame.returns.length > 1 ? "" : `, mean return ${number(means[0])}`;
    setText(summary, `${whole(ended.length)} ended${of}. A seed plays it again.`);
  }

  function row(frame) {
    const again = element("button", { type: "button", class: "plain", on: { click: () => replay(frame.seed) },
      "aria-label": `Play seed ${frame.seed} again` }, String(frame.seed));
    return element("tr", {}, element("td", {}, again), element("td", {}, whole(frame.step)), element("td", {}, result(frame)));
  }

  return { node, begin, add };
}

/** How an episode ended: "pole at 256 won", "draw", or the return of one who plays alone. */
export function result({ returns, names, was_cut: wasCut }) {
  const cut = wasCut ? " (cut)" : "";
  if (returns.length === 1) return `${number(returns[0])}${cut}`;
  const best = Math.max(...returns);
  const winners = [...returns.keys()].filter((player) => returns[player] === best);
  if (winners.length === returns.length) return `draw${cut}`;
  const areNamesakes = new Set(names).size < names.length;
  const named = winners.map((player) => (areNamesakes ? `player ${player + 1}` : names[player]));
  return `${named.join(" and ")} won${cut}`;
}
