/** The controls of a performance: play and pause, step, restart, seed, speed; and who plays. */

import { element, replace, setText } from "../dom.js";
import { whole } from "../format.js";

const [SLOWEST, FASTEST] = [0.5, 60];
const MOST_LISTED = 200;

/** The buttons below the picture. `act` has play, step, restart(seed), speed(stepsPerSecond). */
export function makeTransport(act) {
  const play = element("button", { type: "button", class: "primary watch-play", on: { click: act.play } }, "Pause");
  const step = element("button", { type: "button", on: { click: act.step }, title: "→ or ." }, "Step");
  const restart = element("button", { type: "button", title: "R", on: { click: () => act.restart(seed.value) } }, "Restart");
  const seed = element("input", { type: "number", min: 0, step: 1, id: "watch-seed", inputmode: "numeric" });
  const speed = element("input", { type: "range", min: 0, max: 100, step: 1, id: "watch-speed" });
  const rate = element("output", { for: "watch-speed" });
  seed.addEventListener("change", () => seed.value !== "" && act.restart(seed.value));
  speed.addEventListener("input", () => {
    tellSpeed(fromSlider(speed.value));
    act.speed(fromSlider(speed.value));
  });
  const node = element("div", { class: "transport" }, play, step, restart,
    element("span", { class: "field" }, element("label", { for: "watch-seed" }, "Seed"), seed),
    element("span", { class: "field speed" }, element("label", { for: "watch-speed" }, "Speed"), speed, rate));

  function tellSpeed(value) {
    const words = `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} steps/s`;
    setText(rate, words);
    speed.setAttribute("aria-valuetext", words);
  }

  return {
    node,
    showPlaying(isPlaying) {
      setText(play, isPlaying ? "Pause" : "Play");
      play.title = "Space";
    },
    showSpeed(value) {
      speed.value = toSlider(value);
      tellSpeed(value);
    },
    showSeed(value) {
      if (document.activeElement !== seed) seed.value = value;
    },
  };
}

function fromSlider(place) {
  return SLOWEST * (FASTEST / SLOWEST) ** (place / 100);
}

function toSlider(value) {
  return Math.round((100 * Math.log(value / SLOWEST)) / Math.log(FASTEST / SLOWEST));
}

/** Which checkpoint plays against whom, and how it chooses. `change(name, value)` is called for every change. */
export function makeChoices(change) {
  const checkpoint = chooser("Checkpoint", "checkpoint", change);
  const against = chooser("Against", "against", change);
  const search = chooser("Search", "search", change);
  const samples = element("input", { type: "checkbox", id: "watch-samples",
    on: { change: () => change("samples", samples.checked) } });
  const drawn = element("span", { class: "field" }, samples, element("label", { for: "watch-samples" }, "Draw actions"));
  drawn.title = "Draw actions at random as in training, in place of the most likely ones";
  const node = element("div", { class: "watch-choices" }, checkpoint.node, against.node, search.node, drawn);

  /** @param ready the server's facts  @param choices what was chosen  @param runs others of the same world */
  function show(ready, choices, runs) {
    listCheckpoints(ready, choices.checkpoint);
    const earlier = ready.checkpoints.slice(-20).reverse().map((name) => [`${ready.run}/${name}`, stepOf(name)]);
    against.node.hidden = ready.opponents.length === 0;
    against.show([["", "itself"], ...ready.opponents.map((name) => [name, name])], choices.against ?? "",
      { "Other runs, latest": runs.map((name) => [name, name]), "This run at": earlier });
    search.node.hidden = !ready.searches;
    const sizes = [16, 64, 256].map((size) => [`alphazero:${size}`, `${size} positions`]);
    search.show([["", "none"], ...sizes], choices.search ?? "");
    samples.checked = ready.samples;
    drawn.hidden = false;
  }

  /** Where nothing plays: the checkpoints alone, and a way back from what cannot be. */
  function showFailed(listed, chosen) {
    listCheckpoints(listed, chosen);
    for (const each of [against.node, search.node, drawn]) each.hidden = true;
  }

  function listCheckpoints({ checkpoints, best }, chosen) {
    const newest = checkpoints.at(-1);
    const listed = checkpoints.slice(-MOST_LISTED).reverse().map((name) => [name, stepOf(name)]);
    const links = [["latest", newest ? `latest (${stepOf(newest)})` : "latest"]];
    if (best) links.push(["best", `best (${stepOf(best)})`]);
    checkpoint.show([...links, ...listed], chosen);
  }

  return { node, show, showFailed, listCheckpoints };
}

/** "step_00010240" as "10,240 steps". */
export function stepOf(name) {
  return `${whole(Number(name.replace("step_", "")))} steps`;
}

function chooser(label, name, change) {
  const select = element("select", { id: `watch-${name}`, on: { change: () => change(name, select.value) } });
  const node = element("span", { class: "field" }, element("label", { for: `watch-${name}` }, label), select);

  function show(options, chosen, groups = {}) {
    const known = [...options, ...Object.values(groups).flat()].some(([value]) => value === chosen);
    const all = known ? options : [...options, [chosen, chosen]];
    replace(select, ...all.map(option), ...Object.entries(groups).filter(([, each]) => each.length).map(
      ([title, each]) => element("optgroup", { label: title }, ...each.map(option))));
    select.value = chosen;
  }

  return { node, show };
}

function option([value, words]) {
  return element("option", { value }, words);
}
