/** Watch a checkpoint play: pictures, what it thinks, its value over time; at a chosen speed, against whom one likes. */

import { element, replace, setText } from "../parts/dom.js";
import { number, whole } from "../parts/format.js";
import { makePicture } from "../parts/watch/picture.js";
import { makeThoughts } from "../parts/watch/thoughts.js";
import { makeValueChart } from "../parts/watch/value_chart.js";
import { makeChoices, makeTransport, stepOf } from "../parts/watch/controls.js";
import { makeEpisodes, result } from "../parts/watch/episodes.js";

export async function show(root, parameters, page) {
  page.title(`Watch ${parameters.name}`);
  const watching = new Watching(root, parameters, page);
  return () => watching.end();
}

class Watching {
  constructor(root, parameters, page) {
    this.page = page;
    this.choices = choicesOf(parameters);
    this.isPlaying = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.speed = null; // the world's own until somebody chooses
    this.frame = null; // the last one that came
    this.pending = null; // numbers of a frame whose picture is on the way
    this.unseen = 0; // drawn while the page was hidden: told when it shows again
    this.drawing = Promise.resolve();
    this.build(root);
    this.listen();
    this.socket = page.socket("/api/watch", {
      open: () => this.start(),
      message: (message) => this.take(message),
      binary: (png) => this.draw(this.pending, png),
    });
  }

  build(root) {
    this.picture = makePicture();
    this.chart = makeValueChart();
    this.episodes = makeEpisodes((seed) => this.restart(seed));
    this.transport = makeTransport({
      play: () => this.togglePlay(),
      step: () => this.step(),
      restart: (seed) => this.restart(seed),
      speed: (value) => this.setSpeed(value),
    });
    this.choosers = makeChoices((name, value) => this.choose(name, value));
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.retry = element("button", { type: "button", hidden: true, on: { click: () => this.start() } }, "Try again");
    this.notes = element("div", { class: "watch-notes" });
    this.newer = element("button", { type: "button", hidden: true, on: { click: () => this.choose("checkpoint", "latest") } });
    this.status = element("p", { class: "watch-status quiet", role: "status" }, "connecting");
    this.facts = element("p", { class: "watch-facts" });
    this.thoughtsPlace = element("div");
    const run = this.choices.run;
    replace(root,
      element("div", { class: "view-head" }, element("h1", {}, `Watch ${run}`),
        element("a", { href: `#/run/${encodeURIComponent(run)}` }, "The run"), this.newer),
      this.problem, this.notes, this.choosers.node, this.retry, this.status,
      this.body = element("div", { class: "watch", hidden: true },
        element("section", { class: "card watch-stage", "aria-label": "The world" },
          this.picture.node, this.facts, this.transport.node),
        element("div", { class: "watch-side" },
          element("section", { class: "card" }, element("h2", {}, "Actions"), this.thoughtsPlace),
          element("section", { class: "card" }, element("h2", {}, "Value"), this.chart.node),
          element("section", { class: "card" }, element("h2", {}, "Episodes"), this.episodes.node))));
    this.choosers.node.hidden = true;
    this.transport.showPlaying(this.isPlaying);
  }

  listen() {
    this.onKey = (event) => this.press(event);
    this.onShown = () => !document.hidden && this.acknowledge(0);
    document.addEventListener("keydown", this.onKey);
    document.addEventListener("visibilitychange", this.onShown);
  }

  end() {
    document.removeEventListener("keydown", this.onKey);
    document.removeEventListener("visibilitychange", this.onShown);
    this.socket.close();
    this.picture.forget();
  }

  /** Space plays and pauses, → and . step, R begins again; not while a field or slider has the keys. */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === " " && /^(BUTTON|A|SUMMARY)$/.test(event.target.tagName)) return;
    const deed = { " ": () => this.togglePlay(), ArrowRight: () => this.step(), ".": () => this.step(),
      r: () => this.restart() }[event.key];
    if (!deed) return;
    event.preventDefault();
    deed();
  }

  start() {
    this.unseen = 0;
    this.pending = null;
    this.socket.send({ do: "start", ...this.choices, speed: this.speed, paused: !this.isPlaying });
  }

  /** Another checkpoint, opponent or way to choose: the same seed begins again, so that one can compare. */
  choose(name, value) {
    this.choices[name] = value === "" ? null : value;
    if (this.frame) this.choices.seed = this.frame.seed;
    const query = Object.entries(this.choices).filter(([key, each]) => key !== "run" && each !== null);
    history.replaceState(null, "", `#/watch/${encodeURIComponent(this.choices.run)}?${new URLSearchParams(query)}`);
    this.start();
  }

  togglePlay() {
    this.socket.send({ do: this.isPlaying ? "pause" : "resume" });
  }

  step() {
    this.socket.send({ do: "step" });
  }

  restart(seed) {
    const chosen = seed === undefined || seed === "" ? null : Number(seed);
    this.socket.send({ do: "restart", seed: chosen });
  }

  setSpeed(value) {
    this.speed = value;
    this.socket.send({ do: "speed", speed: value });
  }

  take(message) {
    if (message.kind === "frame") {
      if (message.has_picture) this.pending = message;
      else this.draw(message, null);
      return;
    }
    ({
      status: () => setText(this.status, message.text),
      ready: () => this.showReady(message),
      state: () => this.showState(message.is_playing),
      checkpoints: () => this.showCheckpoints(message),
      error: () => this.showError(message),
    })[message.kind]?.();
  }

  showReady(ready) {
    this.ready = ready;
    this.frame = null;
    this.problem.hidden = this.retry.hidden = true;
    this.body.hidden = false;
    this.waits = false;
    setText(this.status, "");
    this.transport.showSpeed(ready.speed);
    this.choosers.show(ready, this.choices, this.otherRuns ?? []);
    this.choosers.node.hidden = false;
    if (ready.opponents.length && !this.otherRuns) this.findRuns(ready);
    replace(this.notes, ...ready.notes.map((note) => element("p", { class: "advice" }, note)));
    this.thoughts = makeThoughts(ready.actions);
    replace(this.thoughtsPlace, this.thoughts.node);
    this.episodes.begin(ready);
    this.showCheckpoints(ready);
  }

  /** Other runs of the same world, to play against. */
  async findRuns(ready) {
    const { runs } = await this.page.api("/api/runs");
    this.otherRuns = runs.filter((run) => run.env === ready.env && run.name !== ready.run).map((run) => run.name);
    if (this.ready === ready) this.choosers.show(ready, this.choices, this.otherRuns);
  }

  showState(isPlaying) {
    this.isPlaying = isPlaying;
    this.transport.showPlaying(isPlaying);
  }

  /** While the run trains on, newer checkpoints come; and old ones go. */
  showCheckpoints({ checkpoints, best }) {
    if (!this.ready && this.waits && checkpoints.length) this.start(); // the first one has come
    if (!this.ready) return;
    Object.assign(this.ready, { checkpoints, best });
    this.choosers.listCheckpoints(this.ready, this.choices.checkpoint);
    const newest = checkpoints.at(-1);
    this.newer.hidden = !newest || this.choices.checkpoint !== "latest" || newest <= this.ready.checkpoint;
    setText(this.newer, newest ? `Newer checkpoint: ${stepOf(newest)}` : "");
    if (!checkpoints.includes(this.ready.checkpoint)) {
      setText(this.status, `The checkpoint of ${stepOf(this.ready.checkpoint)} was removed; what was loaded plays on.`);
    }
  }

  /** What went wrong; where nothing plays because of it, another checkpoint may. */
  showError({ error, has_ended: hasEnded, checkpoints = [], best = null }) {
    setText(this.problem, error);
    this.problem.hidden = false;
    setText(this.status, "");
    if (!hasEnded) return;
    this.body.hidden = true;
    this.ready = null;
    this.showState(this.isPlaying);
    this.choosers.node.hidden = this.retry.hidden = checkpoints.length === 0;
    this.choosers.showFailed({ checkpoints, best }, this.choices.checkpoint);
    this.waits = checkpoints.length === 0;
    Object.assign(this.choices, { against: null, search: null });
  }

  /** Draw frames in the order they came, and tell the server of each: it plays no more than two ahead. */
  draw(frame, png) {
    this.pending = null;
    this.drawing = this.drawing.then(async () => {
      if (!this.ready) return;
      await this.picture.show(png, frame.text, `Step ${frame.step} of the episode with seed ${frame.seed}`);
      this.showFrame(frame);
      this.acknowledge(1);
    }).catch((error) => this.showError({ error: error.message }));
  }

  acknowledge(count) {
    this.unseen += count;
    if (document.hidden) return; // nobody looks: the server waits
    for (; this.unseen > 0; this.unseen--) this.socket.send({ do: "seen" });
  }

  showFrame(frame) {
    const before = this.frame;
    this.frame = frame;
    if (!before || frame.step === 0) this.chart.clear(frame.names);
    this.chart.add(frame.step, frame.thoughts);
    if (!frame.ended) this.thoughts.show(frame.thoughts, frame.names);
    this.transport.showSeed(frame.seed);
    replace(this.facts, ...facts(frame, this.ready));
    if (frame.ended) this.episodes.add(frame);
  }
}

function choicesOf({ name, checkpoint, against, search, seed, samples }) {
  return {
    run: name,
    checkpoint: checkpoint || "latest",
    against: against || null,
    search: search || null,
    seed: seed === undefined || Number.isNaN(Number(seed)) ? null : Number(seed),
    samples: samples === undefined ? null : samples === "true",
  };
}

function facts(frame, ready) {
  const fact = (label, value) => element("span", {}, element("span", { class: "quiet" }, `${label} `), value);
  const returns = frame.returns.slice(0, 8).map(number).join(" : ");
  const to = frame.thoughts[0];
  return [
    fact("step", whole(frame.step)),
    fact("return", returns),
    frame.ended ? element("span", { class: "mark" }, ending(frame)) : null,
    ready.by_turns && to ? fact("to move", frame.names[to.player]) : null,
  ];
}

function ending(frame) {
  return frame.returns.length > 1 ? result(frame) : frame.was_cut ? "reached its limit of steps" : "ended";
}
