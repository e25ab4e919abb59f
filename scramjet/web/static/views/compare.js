/** Compare: several runs or groups of seeds on one plot, their final numbers, and the settings that differ. */

import { differencesTable, layoutOf, legendOf, numbersTable, tracesOf } from "../parts/compare_parts.js";
import { element, replace, throttled } from "../parts/dom.js";
import { draw, forget, loadPlotly } from "../parts/plots.js";

const REFRESH_MILLISECONDS = 3000;
const FEW_RUNS = 60; // all are offered at once; of more, those that are found
const GROUPS = [["seeds", "seeds together"], ["each", "each run alone"]];
const AXES = [["steps", "steps"], ["time", "wall time"]];
const AGGREGATES = [["mean", "mean"], ["iqm", "interquartile mean"]];
const SMOOTHING = [["0", "none"], ["0.02", "2 %"], ["0.05", "5 %"], ["0.1", "10 %"], ["0.2", "20 %"]];

export async function show(root, parameters, page) {
  const names = (parameters.runs ?? "").split(",").filter(Boolean);
  if (names.length === 0) return showChoice(root, page);
  loadPlotly().catch(() => {}); // beside the first answer; whoever draws says what failed
  const view = new CompareView(root, names, parameters, page);
  await view.refresh();
  return () => view.end();
}

class CompareView {
  constructor(root, names, { metric = "", group = "seeds", axis = "steps", aggregate = "mean", smooth = "0" }, page) {
    this.page = page;
    this.root = root;
    this.names = names;
    this.wishes = { metric, group, axis, aggregate, smooth };
    this.plots = [];
    this.isOver = false;
    this.asked = 0;
    this.controls = element("div", { class: "compare-controls" });
    this.results = element("div", {});
    replace(root, element("div", { class: "view-head" }, element("h1", {}, "Compare"), element("span", { class: "spacer" }),
      element("a", { class: "button", href: "#/compare" }, "Choose other runs")), this.runList(), this.controls, this.results);
    this.refreshSoon = throttled(() => this.refresh().catch((error) => page.toast(error.message, "error")), REFRESH_MILLISECONDS);
    this.socket = page.socket("/api/live", {
      open: () => this.socket.send({ watch: "runs" }),
      message: (news) => {
        if (news.type === "rows" && news.rows.some((row) => names.includes(row.name))) this.refreshSoon();
      },
    });
  }

  end() {
    this.isOver = true;
    this.refreshSoon.cancel();
    this.socket.close();
    this.plots.forEach(forget);
  }

  /** The chosen runs, each with a button that takes it out. */
  runList() {
    const marks = this.names.map((name) => {
      const without = this.names.filter((each) => each !== name);
      const remove = element("a", { class: "button", href: addressOf(without, this.wishes), "aria-label": `Leave out ${name}` }, "×");
      return element("span", { class: "mark" }, element("a", { href: `#/run/${encodeURIComponent(name)}` }, name), remove);
    });
    return element("div", { class: "compare-runs" }, marks);
  }

  /** Ask the server, and show its answer unless a later one came first. */
  async refresh() {
    const turn = ++this.asked;
    const query = new URLSearchParams({ runs: this.names.join(","), ...this.wishes });
    const answer = await this.page.api(`/api/compare?${query}`);
    if (this.isOver || turn !== this.asked) return;
    this.showControls(answer);
    await this.showResults(answer);
  }

  wish(name, value) {
    this.wishes[name] = value;
    history.replaceState(null, "", addressOf(this.names, this.wishes));
    this.refresh().catch((error) => this.page.toast(error.message, "error"));
  }

  showControls({ metric, metrics, settings }) {
    const known = metrics.includes(metric) ? metrics : [metric, ...metrics];
    const groups = [...GROUPS, ...settings.map((name) => [name, `by ${name}`])];
    const fields = [
      ["metric", "Metric", known.map((name) => [name, name]), metric],
      ["axis", "Over", AXES, this.wishes.axis],
      ["group", "Runs", groups, this.wishes.group],
      ["aggregate", "Of several", AGGREGATES, this.wishes.aggregate],
      ["smooth", "Smoothing", SMOOTHING, this.wishes.smooth],
    ];
    const signature = JSON.stringify(fields);
    if (signature === this.shownControls) return; // an open list stays open
    this.shownControls = signature;
    const focused = document.activeElement?.id;
    replace(this.controls, ...fields.map((field) => this.field(...field)));
    if (focused) document.getElementById(focused)?.focus();
  }

  field(name, label, options, chosen) {
    const id = `compare-${name}`;
    const choices = options.map(([value, text]) => element("option", { value, selected: value === chosen }, text));
    const list = element("select", { id, on: { change: () => this.wish(name, list.value) } }, choices);
    return element("span", { class: "field" }, element("label", { for: id }, label), list);
  }

  async showResults(answer) {
    const isSame = this.plots.length === answer.panels.length && this.plots.length > 0;
    if (!isSame) this.makePlots(answer.panels);
    replace(this.beside, ...besideOf(answer));
    replace(this.legend, legendOf(answer.contenders));
    await Promise.all(answer.panels.map((panel, place) =>
      draw(this.plots[place], () => ({ traces: tracesOf(panel), layout: { ...layoutOf(panel), uirevision: this.wishes.axis + answer.metric } }))));
    this.plots.forEach((plot, place) => {
      plot.setAttribute("aria-label", `Curves of ${answer.metric} over ${answer.panels[place].x_title}`);
    });
  }

  makePlots(panels) {
    this.plots.forEach(forget);
    this.plots = panels.map(() => element("div", { class: "compare-plot", role: "img" }));
    this.legend = element("div", {});
    this.beside = element("div", {});
    const parts = panels.flatMap((panel, place) => [panel.title ? element("h3", {}, panel.title) : null, this.plots[place]]);
    const nothing = panels.length === 0 ? element("p", { class: "quiet" }, "None of these runs has this metric yet.") : null;
    const plotCard = element("section", { class: "card", "aria-label": "Curves" }, ...parts, nothing, this.legend);
    replace(this.results, element("div", { class: "compare-grid" }, element("div", {}, plotCard), this.beside));
  }
}

/** What stands beside the plot: settings that differ, final numbers, forks, and notes. */
function besideOf({ differences, contenders, relations, notes }) {
  const differ = Object.keys(differences).length > 0 ? differencesTable(differences, contenders)
    : element("p", { class: "quiet" }, "Nothing but the seed differs.");
  return [
    ...notes.map((note) => element("p", { class: "problem" }, note)),
    element("section", {}, element("h2", {}, "What differs"), differ),
    element("section", {}, element("h2", {}, "Where they ended"), numbersTable(contenders)),
    relations.length === 0 ? null
      : element("section", {}, element("h2", {}, "Forks"), ...relations.map((text) => element("p", {}, text))),
  ].filter(Boolean);
}

/** The address of a comparison, to share or keep; what is as usual is left out. */
function addressOf(names, wishes) {
  const usual = { metric: "", group: "seeds", axis: "steps", aggregate: "mean", smooth: "0" };
  const kept = Object.entries(wishes).filter(([name, value]) => value !== usual[name]);
  const query = kept.map(([name, value]) => `&${name}=${encodeURIComponent(value)}`).join("");
  return names.length === 0 ? "#/compare" : `#/compare?runs=${names.map(encodeURIComponent).join(",")}${query}`;
}

/** Where no runs are named: a list to choose from. */
async function showChoice(root, page) {
  const { runs, runs_dir } = await page.api("/api/runs");
  if (runs.length === 0) {
    replace(root, element("div", { class: "empty" }, element("p", {}, `No runs in ${runs_dir} yet.`)));
    return;
  }
  const names = runs.map((run) => run.name).sort(new Intl.Collator("en", { numeric: true }).compare);
  const chosen = new Set();
  const list = element("ul", { class: "compare-choice" });
  const go = element("button", { class: "primary", hidden: true, on: { click: () => page.go(addressOf([...chosen], {})) } }, "Compare");
  const choose = (name, isChosen) => {
    if (isChosen) chosen.add(name);
    else chosen.delete(name);
    go.hidden = chosen.size === 0;
  };
  const search = element("input", { type: "search", id: "compare-search", on: { input: () => fill() } });
  const fill = () => {
    const found = names.filter((name) => name.includes(search.value));
    const shown = found.slice(0, FEW_RUNS).map((name) => choice(name, chosen.has(name), choose));
    const more = found.length > FEW_RUNS ? element("li", { class: "quiet" }, `and ${found.length - FEW_RUNS} more`) : null;
    replace(list, ...shown, more);
  };
  fill();
  replace(root, element("div", { class: "view-head" }, element("h1", {}, "Compare"), element("span", { class: "field" },
    element("label", { for: "compare-search" }, "Search"), search), go), list);
}

function choice(name, isChosen, choose) {
  const id = `compare-run-${name}`;
  const box = element("input", { type: "checkbox", id, checked: isChosen, on: { change: () => choose(name, box.checked) } });
  return element("li", {}, box, " ", element("label", { for: id }, name));
}
