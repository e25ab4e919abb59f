/** One run: its curves live, how it stands, and all that its folder holds. */

import { element, replace, setText, throttled } from "../parts/dom.js";
import { ago, bytes, count, duration, moment, number, percent, whole } from "../parts/format.js";
import { progressBar, stateMark } from "../parts/marks.js";
import { loadPlotly } from "../parts/plots.js";
import { OVER, RunCharts } from "../parts/run_charts.js";
import { RunData } from "../parts/run_data.js";
import { drawCheckpoints, drawConfig, drawForks, drawLog, drawTimes, drawVideos, panel } from "../parts/run_panels.js";
import { share } from "../parts/share.js";

const DETAILS_MILLISECONDS = 3000;
const ADVICE_MILLISECONDS = 4000;

export async function show(root, parameters, page) {
  page.title(parameters.name);
  const view = new RunView(root, parameters.name, page);
  await view.load();
  return () => view.close();
}

class RunView {
  constructor(root, name, page) {
    this.root = root;
    this.name = name;
    this.page = page;
    this.path = `/api/runs/${encodeURIComponent(name)}`;
    this.data = new RunData();
    this.drawn = {};
    this.refresh = throttled(() => this.fetchDetails(), DETAILS_MILLISECONDS);
  }

  async load() {
    loadPlotly();
    const [details, { metrics }] = await Promise.all([this.page.api(this.path), this.page.api("/api/metrics")]);
    this.charts = new RunCharts(this.data, metrics);
    this.build();
    this.takeDetails(details);
    this.socket = this.page.socket("/api/live", {
      open: () => this.socket.send({ watch: "run", name: this.name }),
      message: (message) => this.take(message),
    });
  }

  close() {
    this.refresh.cancel();
    this.charts.close();
    this.socket?.close();
  }

  build() {
    this.state = element("span", {});
    this.facts = element("p", { class: "run-facts quiet" });
    this.machine = element("p", { class: "run-facts quiet", hidden: true });
    this.bar = element("div", {});
    this.advice = element("div", { role: "status" });
    this.problems = element("div", {});
    this.notPlayed = element("p", { class: "advice not-played", hidden: true });
    this.unreadable = element("p", { class: "problem", hidden: true });
    this.panels = {
      checkpoints: panel("Checkpoints"), times: panel("Where the time goes"), forks: panel("Forks"), videos: panel("Videos"),
      config: panel("Config"), log: panel("Log"),
    };
    const over = Object.entries(OVER).map(([key, label]) => element("button", {
      "aria-pressed": String(key === "step"), "data-over": key, on: { click: () => this.setOver(key) } }, label));
    this.over = element("div", { class: "choice", role: "group", "aria-label": "Draw over" }, ...over);
    const query = encodeURIComponent(this.name);
    const head = element("div", { class: "view-head" }, element("h1", {}, this.name), this.state, element("span", { class: "spacer" }),
      element("a", { class: "button needs-agent", href: `#/watch/${query}` }, "Watch"), element("a", { class: "button native-only needs-agent", href: `#/play/${query}` }, "Play"),
      element("button", { class: "native-only needs-agent", title: "One HTML file in which anyone plays against it or watches it", on: { click: ({ target }) => share(this.name, target) } }, "Share"));
    const curve = element("section", { class: "card main-chart" },
      element("div", { class: "card-head" }, this.charts.heading, element("span", { class: "spacer" }), this.over), this.charts.main);
    const small = element("section", { class: "card" }, element("h2", {}, "Diagnostics"), this.charts.small);
    const cards = Object.values(this.panels).map(({ card }) => card);
    replace(this.root, head, this.bar, this.facts, this.machine, this.notPlayed, this.problems, this.unreadable, this.advice, curve, small, element("div", { class: "cards panels" }, ...cards));
    this.panels.forks.card.hidden = true;
    this.panels.videos.card.hidden = true;
  }

  async fetchDetails() {
    this.takeDetails(await this.page.api(this.path));
  }

  async fetchCurves() {
    const { columns, unreadable } = await this.page.api(`${this.path}/curves`);
    this.data.load(columns);
    this.charts.draw();
    drawTimes(this.panels.times.body, this.data);
    setText(this.unreadable, unreadable ? `${unreadable} lines of metrics.jsonl hold no record and are left out.` : "");
    this.unreadable.hidden = !unreadable;
  }

  take(message) {
    if (message.type === "watching" || message.restarted) {
      this.fetchCurves();
      this.refresh();
    } else if (message.type === "error") this.page.toast(message.error, "error");
    if (message.type !== "run") return;
    if (message.records?.filter((record) => this.data.append(record)).length) {
      this.charts.draw();
      drawTimes(this.panels.times.body, this.data);
      this.refresh();
    }
    if (message.row) this.takeRow(message.row);
    if (message.log) this.fill("log", message.log, (body, _, log) => drawLog(body, log));
    if (message.findings) this.takeFindings(message.findings);
    this.drawLoad(message.load);
  }

  takeDetails(details) {
    if (details.row) this.takeRow(details.row);
    this.root.classList.toggle("foreign-world", !details.is_native);
    this.root.classList.toggle("cannot-play", Boolean(details.why_not_played));
    setText(this.notPlayed, `This run cannot be watched or played here: ${details.why_not_played}`);
    this.notPlayed.hidden = !details.why_not_played;
    this.fill("checkpoints", details.checkpoints, drawCheckpoints);
    this.fill("config", details.config, (body, _, config) => drawConfig(body, config));
    this.fill("log", details.log, (body, _, log) => drawLog(body, log));
    this.fill("forks", details.forks, drawForks);
    this.fill("videos", details.videos, drawVideos);
    this.takeFindings(details.findings);
    replace(this.problems, ...details.problems.map((text) => element("p", { class: "problem" }, text)));
  }

  /** Draw a panel anew if what it shows has changed, so that focus, scrolling and a playing video stay; hide it if empty. */
  fill(name, value, drawPanel) {
    const { card, body } = this.panels[name];
    card.hidden = value === null || (name === "videos" && value.length === 0);
    const text = JSON.stringify(value);
    if (card.hidden || this.drawn[name] === text) return;
    this.drawn[name] = text;
    drawPanel(body, this.name, value);
  }

  takeRow(row) {
    this.row = row;
    replace(this.state, stateMark(row.state));
    const share = row.step && row.total ? Math.min(1, row.step / row.total) : 0;
    replace(this.bar, progressBar(share, `progress of ${row.name}`));
    const isRunning = row.state === "running";
    const facts = [
      `${row.env}, ${row.algorithm}, seed ${row.seed ?? "–"}${row.device ? `, ${row.device}` : ""}`,
      `${whole(row.step)} of ${whole(row.total)} steps (${percent(share)})`,
      isRunning ? `${duration(row.seconds_left)} left` : null,
      `${row.metric} ${number(row.value)}`,
      `${count(row.steps_per_second)} steps/s`,
      `trained ${duration(row.elapsed)}`,
      `started ${ago(row.started)}`,
      ...(row.tags ?? []),
    ].filter(Boolean);
    replace(this.facts, ...facts.map((text) => element("span", {}, text)));
    this.facts.title = `started ${moment(row.started)}`;
    this.machine.hidden = !isRunning;
  }

  /** Advice stays some seconds after it was last true, as in the terminal. */
  takeFindings(findings) {
    this.charts.setFindings(findings);
    const now = performance.now();
    this.found ??= new Map();
    for (const [name, text] of Object.entries(findings)) this.found.set(name, { text, until: now + ADVICE_MILLISECONDS });
    for (const [name, { until }] of this.found) if (until < now) this.found.delete(name);
    const texts = [...this.found.values()].map(({ text }) => text);
    if (texts.join("\n") === this.shownAdvice) return;
    this.shownAdvice = texts.join("\n");
    replace(this.advice, ...texts.map((text) => element("p", { class: "advice" }, text)));
  }

  drawLoad(load) {
    if (this.machine.hidden || !load) return;
    const parts = [
      load.cpu === null ? null : `CPU ${percent(load.cpu)} of ${load.num_cpus} cores`,
      load.memory_used === null ? null : `memory ${bytes(load.memory_used)} of ${bytes(load.memory_total)}`,
      load.gpu_memory_used === null ? null : `GPU ${percent(load.gpu)}, ${bytes(load.gpu_memory_used)} of ${bytes(load.gpu_memory_total)}`,
    ].filter(Boolean);
    setText(this.machine, parts.length ? `this machine: ${parts.join(" · ")}` : "");
  }

  setOver(key) {
    for (const button of this.over.children) button.setAttribute("aria-pressed", String(button.dataset.over === key));
    this.charts.setOver(key);
  }
}
