/** The panels of a run beside its curves: where the time goes, checkpoints, forks, config, log, videos. */

import { element, replace } from "./dom.js";
import { ago, bytes, moment, number, percent, whole } from "./format.js";
import { stateMark } from "./marks.js";

const PHASES = ["rollout", "prepare", "learn", "evaluate", "checkpoint"];

/** A card with a heading; returns {card, body}. */
export function panel(title) {
  const body = element("div", {});
  return { card: element("section", { class: "card" }, element("h2", {}, title), body), body };
}

/** Two bars: the shares of the phases over the whole run, and lately. */
export function drawTimes(body, data) {
  const bars = [["whole run", data.rows], ["lately", Math.min(20, data.rows)]].map(([label, rows]) => {
    const seconds = PHASES.map((phase) => data.mean(`time.${phase}_seconds`, rows));
    const all = seconds.reduce((sum, value) => sum + value, 0);
    const shares = seconds.map((value) => (all ? value / all : 0));
    const parts = shares.map((share, place) => element("span", { class: `phase phase-${place + 1}`, style: `width: ${100 * share}%` }));
    const text = PHASES.map((phase, place) => `${phase} ${percent(shares[place])}`).join(", ");
    return { shares, bar: element("div", { class: "time-row" }, element("span", { class: "quiet" }, label),
      element("div", { class: "phases", role: "img", "aria-label": `Time of the ${label}: ${text}` }, ...parts)) };
  });
  const legend = PHASES.map((phase, place) => element("li", {},
    element("span", { class: `key phase-${place + 1}`, "aria-hidden": "true" }), phase, element("b", {}, percent(bars[0].shares[place]))));
  replace(body, ...bars.map(({ bar }) => bar), element("ul", { class: "legend" }, ...legend));
}

/** The checkpoints with their evaluations, and links to watch and play them. */
export function drawCheckpoints(body, name, checkpoints) {
  if (checkpoints.length === 0) {
    replace(body, element("p", { class: "quiet" }, "None yet."));
    return;
  }
  const rows = checkpoints.map((each) => {
    const query = `${encodeURIComponent(name)}?checkpoint=${encodeURIComponent(each.name)}`;
    const marks = [each.is_best && "best", each.is_latest && "latest"].filter(Boolean)
      .map((text) => element("span", { class: text === "best" ? "mark good" : "mark" }, text));
    const links = [["Watch", "watch"], ["Play", "play"]].map(([label, route]) =>
      element("a", { class: route === "play" ? "native-only needs-agent" : "needs-agent", href: `#/${route}/${query}`, "aria-label": `${label} ${each.name}` }, label));
    const evaluation = each.evaluated_at === null ? "–" : number(each.evaluation);
    return element("tr", {},
      element("td", { class: "right", title: each.name }, whole(each.step)),
      element("td", {}, element("span", { class: "tags" }, ...marks), each.problem ? element("span", { class: "mark bad", title: each.problem }, "damaged") : null),
      element("td", { class: "right", title: each.evaluated_at === null ? "" : `evaluated at step ${whole(each.evaluated_at)}` }, evaluation),
      element("td", { class: "right hide-narrow", title: moment(each.saved_at) }, ago(each.saved_at)),
      element("td", { class: "right" }, element("span", { class: "links" }, ...(each.problem ? [] : links))));
  });
  const titles = [["Step", "right"], ["", ""], ["Evaluation", "right"], ["Saved", "right hide-narrow"], ["", ""]];
  replace(body, element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map(([title, kind]) => element(title ? "th" : "td", { class: kind || null }, title)))),
    element("tbody", {}, ...rows))));
}

/** The tree of forks: each with the step it left its parent at, and what it changed. */
export function drawForks(body, name, tree) {
  replace(body, element("ul", { class: "forks" }, fork(tree, name)));
}

function fork(node, name) {
  const changed = Object.entries(node.changed).map(([key, [before, after]]) =>
    element("li", {}, element("code", {}, key), ` ${shown(before)} → ${shown(after)}`));
  const isThis = node.name === name;
  const label = isThis ? element("b", { "aria-current": "true" }, node.name)
    : node.is_here ? element("a", { href: `#/run/${encodeURIComponent(node.name)}` }, node.name) : element("span", { class: "quiet" }, `${node.name} (not in this folder)`);
  return element("li", {},
    element("div", { class: "fork" }, label, node.state ? stateMark(node.state) : null,
      node.value === null ? null : element("span", {}, number(node.value)),
      node.step === null ? null : element("span", { class: "quiet" }, `from step ${whole(node.step)}`)),
    changed.length ? element("ul", { class: "changes" }, ...changed) : null,
    node.children.length ? element("ul", {}, ...node.children.map((child) => fork(child, name))) : null);
}

/** The config, flat, with a box to search it. */
export function drawConfig(body, config) {
  const entries = flat(config);
  const table = element("tbody", {});
  const box = element("input", { type: "search", placeholder: "Search settings", "aria-label": "Search settings", class: "search wide" });
  const render = () => {
    const text = box.value.toLowerCase();
    const found = entries.filter(([key, value]) => `${key} ${shown(value)}`.toLowerCase().includes(text));
    replace(table, ...found.map(([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, shown(value)))));
  };
  box.addEventListener("input", render);
  render();
  replace(body, box, element("div", { class: "scroll" }, element("table", { class: "facts" }, table)));
}

function flat(values, before = "") {
  return Object.entries(values).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${key}.`) : [[before + key, value]]);
}

function shown(value) {
  if (Array.isArray(value)) return `[${value.map(shown).join(", ")}]`;
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The log's last lines; it follows its end unless the reader has scrolled up. */
export function drawLog(body, lines) {
  const before = body.querySelector("pre");
  const isAtEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8;
  const text = lines.length ? lines.join("\n") : "This run has no log: it was trained before runs kept one, or has not begun.";
  const log = element("pre", { class: "log", tabindex: "0", "aria-label": "Log" }, text);
  replace(body, log);
  log.scrollTop = isAtEnd ? log.scrollHeight : before.scrollTop;
}

/** The newest video, and a choice of the others. */
export function drawVideos(body, name, videos) {
  const address = (video) => `/api/runs/${encodeURIComponent(name)}/videos/${encodeURIComponent(video)}`;
  const place = element("div", {});
  const choice = element("select", { "aria-label": "Video" }, ...videos.map((each) => element("option", { value: each.name }, `${each.name} (${bytes(each.bytes)})`)));
  const play = () => {
    const isPicture = choice.value.endsWith(".gif");
    replace(place, isPicture ? element("img", { class: "video", src: address(choice.value), alt: `Video ${choice.value}` })
      : element("video", { class: "video", src: address(choice.value), controls: true, loop: true, muted: true, preload: "metadata" }));
  };
  choice.addEventListener("change", play);
  play();
  replace(body, place, element("p", {}, choice));
}
