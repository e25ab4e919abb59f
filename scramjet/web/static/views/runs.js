/** The list of runs. */

import { element, replace } from "../parts/dom.js";

export async function show(root, parameters, page) {
  const { runs, runs_dir } = await page.api("/api/runs");
  if (runs.length === 0) {
    replace(root, element("div", { class: "empty" },
      element("p", {}, `No runs in ${runs_dir} yet.`),
      element("p", {}, "Begin with ", element("code", {}, "scramjet train cartpole"))));
    return;
  }
  const rows = runs.map((run) => element("tr", {},
    element("td", {}, element("a", { href: `#/run/${run.name}` }, run.name))));
  replace(root, element("h1", {}, "Runs"), element("table", {}, element("tbody", {}, ...rows)));
}
