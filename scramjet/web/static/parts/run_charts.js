/** The curves of one run: its return, large, and a small chart for each other metric, drawn when it is in sight. */

import { element, replace, setText, throttled } from "./dom.js";
import { number } from "./format.js";
import { colour, draw, forget } from "./plots.js";

const MAIN_MILLISECONDS = 1000;
const SMALL_MILLISECONDS = 2000;
const HIDDEN = /^(update|step|episodes|epochs|return_.*|eval\/.*|time\..*|approx_kl_k1|clip_epsilon|entropy_coef|length_mean|versus\/games|self_play\/pool|self_play\/rating.*)$/;
const FIRST = [
  "length_100", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "grad_norm", "learning_rate",
];

export const OVER = { step: "Steps", "time.elapsed_seconds": "Time" };

export class RunCharts {
  /** `data` is the RunData, `metrics` the server's table of what each metric means. */
  constructor(data, metrics) {
    this.data = data;
    this.metrics = new Map(metrics.map((metric) => [metric.name, metric]));
    this.over = "step";
    this.findings = {};
    this.main = element("div", { class: "plot main-plot", role: "img", "aria-label": "Curve of the return" });
    this.heading = element("h2", {}, "Return");
    this.small = element("div", { class: "small-charts" });
    this.charts = new Map();
    this.drawMain = throttled(() => this.renderMain(), MAIN_MILLISECONDS);
    this.drawSmall = throttled(() => this.renderSmall(), SMALL_MILLISECONDS);
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        target.isSeen = isIntersecting;
        if (isIntersecting) this.renderOne(target.dataset.metric, this.charts.get(target.dataset.metric));
      }
    }, { rootMargin: "200px" });
  }

  /** Draw soon what has changed. */
  draw() {
    this.drawMain();
    this.drawSmall();
  }

  /** Mark the metrics that the server found out of range: {name: advice}. */
  setFindings(findings) {
    this.findings = findings;
    for (const [name, chart] of this.charts) this.label(name, chart);
  }

  /** Draw over steps or over time. */
  setOver(over) {
    this.over = over;
    this.renderMain();
    this.renderSmall();
  }

  close() {
    this.drawMain.cancel();
    this.drawSmall.cancel();
    this.observer.disconnect();
    forget(this.main);
    for (const { plot } of this.charts.values()) forget(plot);
  }

  renderMain() {
    const { title, name, shape = "linear", ...others } = this.mainMetric();
    const isReturn = name === "return_100";
    setText(this.heading, title[0].toUpperCase() + title.slice(1));
    this.main.setAttribute("aria-label", `Curve of the ${title}, now ${number(this.data.last(name))}`);
    draw(this.main, () => {
      const line = { color: colour("--curve-1"), width: 2, shape };
      const mean = this.data.curve("return_mean", this.over);
      const traces = !isReturn ? [] : [{ ...mean, name: "each update", mode: "lines", line: { color: colour("--curve-1"), width: 1 }, opacity: 0.3, hoverinfo: "skip" }];
      traces.push({ ...this.data.curve(name, this.over), name: isReturn ? "last 100 episodes" : title, mode: "lines", line });
      for (const [other, label] of Object.entries(others.beside ?? {})) {
        traces.push({ ...this.data.curve(other, this.over), name: label, mode: "lines", line: { color: colour("--curve-2"), width: 1.5, shape } });
      }
      const evaluations = this.data.curve("eval/mean_return", this.over);
      if (evaluations.x.length && isReturn) {
        traces.push({ ...evaluations, name: "evaluation", mode: "markers", marker: { color: colour("--curve-2"), size: 7, symbol: "circle" } });
      }
      return { traces, layout: { height: 320, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, xaxis: this.axis() } };
    });
  }

  /** What tells best how the run goes: in games for several returns say nothing. */
  mainMetric() {
    if (this.data.columns["self_play/rating"]?.length) return { title: "rating", name: "self_play/rating" };
    if (!this.data.columns["versus/random"]?.length) return { title: "return", name: "return_100" };
    return { title: "win rate vs random moves", name: "versus/random", shape: "hv", beside: { "versus/first": "win rate vs its first self" } };
  }

  axis() {
    return this.over === "step" ? { title: { text: "steps" }, tickformat: "~s" } : { title: { text: "seconds" } };
  }

  renderSmall() {
    const names = Object.keys(this.data.columns).filter((name) => !HIDDEN.test(name));
    names.sort((a, b) => place(a) - place(b) || a.localeCompare(b));
    if (names.some((name) => !this.charts.has(name))) this.arrange(names);
    for (const [name, chart] of this.charts) {
      this.label(name, chart);
      if (chart.plot.isSeen) this.renderOne(name, chart);
    }
  }

  arrange(names) {
    for (const name of names) {
      if (this.charts.has(name)) continue;
      const metric = this.metricOf(name);
      const value = element("span", { class: "value" });
      const plot = element("div", { class: "plot", role: "img", "data-metric": name });
      const hint = element("p", { class: "quiet hint" }, metric?.healthy ? `healthy: ${metric.healthy}` : "");
      const box = element("section", { class: "small-chart" },
        element("h3", { title: metric?.meaning ?? "" }, element("span", { class: "name" }, name), value), plot, hint);
      this.charts.set(name, { box, value, plot, metric });
      this.observer.observe(plot);
    }
    replace(this.small, ...names.map((name) => this.charts.get(name).box));
  }

  /** What a metric means; "stat/win" is a "stat/*". */
  metricOf(name) {
    const general = name.replace(/^((?:.*\/)?(?:stat|return_of|loss|against)\/).*$/, "$1*");
    return this.metrics.get(name) ?? this.metrics.get(general);
  }

  label(name, { value, plot, box, metric }) {
    const last = this.data.last(name);
    const isOut = name in this.findings;
    setText(value, isOut ? `${number(last)} out of range` : number(last));
    box.classList.toggle("unhealthy", isOut);
    plot.setAttribute("aria-label", `Curve of ${name}, now ${number(last)}. ${metric?.meaning ?? ""}`);
  }

  renderOne(name, { plot, metric }) {
    draw(plot, () => {
      const curve = this.data.curve(name, this.over);
      const range = rangeOf(curve.y);
      const trace = { ...curve, name, mode: "lines", line: { color: colour("--curve-1"), width: 1.5 } };
      const ticks = { nticks: 4, ...(this.over === "step" ? { tickformat: "~s" } : {}) };
      return { traces: [trace], layout: { height: 130, xaxis: ticks, yaxis: { range, nticks: 4 }, shapes: healthyBand(metric, range), font: font() } };
    });
  }
}

function place(name) {
  const found = FIRST.indexOf(name);
  return found === -1 ? (name.startsWith("stat/") ? -1 : FIRST.length) : found;
}

function font() {
  return { size: 10, color: colour("--quiet") };
}

/** The span of the numbers with some air, so that the band of the healthy range does not stretch it. */
function rangeOf(numbers) {
  if (numbers.length === 0) return [0, 1];
  let [low, high] = [Infinity, -Infinity];
  for (const value of numbers) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const air = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - air, high + air];
}

/** The part of the healthy range that is in sight, shaded, with a line at its bound. */
function healthyBand(metric, [low, high]) {
  if (!metric?.healthy) return [];
  const [bottom, top] = [Math.max(low, metric.low ?? low), Math.min(high, metric.high ?? high)];
  const across = { xref: "paper", x0: 0, x1: 1, layer: "below" };
  const band = top > bottom ? [{ ...across, type: "rect", y0: bottom, y1: top, fillcolor: colour("--good"), opacity: 0.1, line: { width: 0 } }] : [];
  const bounds = [metric.low, metric.high].filter((bound) => bound !== null && bound > low && bound < high);
  return [...band, ...bounds.map((bound) => ({ ...across, type: "line", y0: bound, y1: bound, line: { color: colour("--good"), width: 1, dash: "dot" } }))];
}
