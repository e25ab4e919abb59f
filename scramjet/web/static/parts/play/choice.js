/** Where no run and no world is named: the worlds that come with scramjet, to choose from. */

import { element, replace } from "../dom.js";

/** Fill `root` with the worlds; each leads to a game. */
export async function showChoice(root, page) {
  const { worlds } = await page.api("/api/play/worlds");
  const group = (title, chosen) => element("section", { class: "card" }, element("h2", {}, title),
    element("ul", { class: "world-list" }, chosen.map((world) => element("li", {},
      element("a", { href: `#/play?world=${encodeURIComponent(world.name)}` }, world.name),
      element("span", { class: "quiet" }, ` ${world.about}`)))));
  replace(root,
    element("div", { class: "view-head" }, element("h1", {}, "Play")),
    element("p", { class: "quiet" }, "To play against a trained agent, open its run and choose Play. These worlds need no run."),
    element("div", { class: "cards" },
      group("Games for two", worlds.filter((world) => world.num_players > 1)),
      group("For one", worlds.filter((world) => world.num_players === 1))));
}
