/** Where no run and no world is named: one's own runs and worlds, and those that come with scramjet, to choose from. */

import { element, replace } from "../dom.js";
import { ago, number } from "../format.js";

const MOST_RUNS = 12;

/** Fill `root` with runs and worlds; each leads to a game. */
export async function showChoice(root, page) {
  const [{ worlds, libraries }, { runs }] = await Promise.all([page.api("/api/play/worlds"), page.api("/api/runs")]);
  const known = new Set(worlds.map((world) => world.name));
  const playable = runs.filter((run) => run.step && run.env && !libraries.includes(run.env.split(":")[0]));
  playable.sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  const own = new Map(playable.filter((run) => !known.has(run.env)).reverse().map((run) => [run.env, run])); // the newest
  const card = (title, lines) => lines.length === 0 ? null : element("section", { class: "card" }, element("h2", {}, title),
    element("ul", { class: "world-list" }, lines));
  const line = (run, name, about) => element("li", {},
    element("a", { href: `#/play/${encodeURIComponent(run.name)}` }, name), element("span", { class: "quiet" }, ` ${about}`));
  const group = (title, chosen) => element("section", { class: "card" }, element("h2", {}, title),
    element("ul", { class: "world-list" }, chosen.map((world) => element("li", {},
      element("a", { href: `#/play?world=${encodeURIComponent(world.name)}` }, world.name),
      element("span", { class: "quiet" }, ` ${world.about}`)))));
  replace(root,
    element("div", { class: "view-head" }, element("h1", {}, "Play")),
    element("div", { class: "cards choice-of-worlds" }, element("div", {},
      card("Your runs", playable.slice(0, MOST_RUNS).map((run) =>
        line(run, run.name, `${run.env}, ${run.metric} ${number(run.value)}, ${ago(run.started)}`))),
      card("Your worlds", [...own].reverse().map(([env, run]) => line(run, env, `with hints by ${run.name}`))),
      group("Games for two", worlds.filter((world) => world.num_players > 1))),
      group("For one", worlds.filter((world) => world.num_players === 1))));
}
