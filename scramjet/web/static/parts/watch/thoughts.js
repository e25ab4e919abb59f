/** What a policy thinks of a position: a bar for each action, the one it takes marked, illegal ones greyed out. */

import { element, setText } from "../dom.js";
import { number } from "../format.js";

const MOST_BARS = 12;

/**
 * The thoughts of those to move, one below the other.
 * @param {{choices: string[][], numbers: (?number)[][]}} actions names of choices, or bounds of numbers
 * @returns {{node: HTMLElement, show: function(Object[], string[])}} `show` takes thoughts and the players' names
 */
export function makeThoughts(actions) {
  const node = element("div", { class: "thoughts" });
  const panels = [];

  function show(thoughts, names) {
    while (panels.length < thoughts.length) {
      panels.push(makePanel(actions));
      node.append(panels.at(-1).node);
    }
    panels.forEach((panel, place) => {
      panel.node.hidden = place >= thoughts.length;
      if (place < thoughts.length) panel.show(thoughts[place], names);
    });
  }

  return { node, show };
}

function makePanel(actions) {
  const [name, value] = [element("h3"), element("span", { class: "quiet" })];
  const parts = actions.numbers.length ? actions.numbers.map(makeNumber) : actions.choices.map(makeChoice);
  const node = element("section", { class: "thought" }, element("div", { class: "thought-head" }, name, value),
    ...parts.map((part) => part.node));

  function show(thought, names) {
    setText(name, names.length > 1 ? names[thought.player] : "");
    name.hidden = names.length < 2;
    setText(value, thought.value === null ? "no network" : `value ${number(thought.value)}`);
    const shown = actions.numbers.length ? thought.numbers : thought.choices;
    parts.forEach((part, place) => shown[place] && part.show(shown[place]));
  }

  return { node, show };
}

/** Bars of one choice; of many choices those that are likely, and the one taken. */
function makeChoice(names, place, all) {
  const isLong = names.length > MOST_BARS;
  const bars = Array.from({ length: Math.min(names.length, MOST_BARS) }, makeBar);
  const rest = element("p", { class: "quiet", hidden: !isLong });
  const title = all.length > 1 ? element("h4", {}, `part ${place + 1}`) : null;
  const node = element("div", { class: "bars" }, title, ...bars.map((bar) => bar.node), rest);

  function show({ probabilities, legal, taken }) {
    const order = isLong ? likeliest(probabilities, taken) : names.keys();
    let number = 0;
    for (const choice of order) {
      bars[number++].show(names[choice], probabilities[choice], legal ? legal[choice] : true, choice === taken);
    }
    if (isLong) setText(rest, `and ${names.length - MOST_BARS} less likely ones`);
  }

  return { node, show };
}

function likeliest(probabilities, taken) {
  const order = [...probabilities.keys()].sort((one, other) => probabilities[other] - probabilities[one]);
  const first = (order.length ? order : [taken]).slice(0, MOST_BARS);
  return first.includes(taken) ? first : [...first.slice(0, -1), taken];
}

function makeBar() {
  const [name, fill, share] = [element("span", { class: "bar-name" }), element("span"), element("span", { class: "right" })];
  const node = element("div", { class: "bar" }, name, element("div", { class: "bar-track" }, fill), share);

  function show(label, probability, isLegal, isTaken) {
    setText(name, label);
    name.title = label;
    fill.style.width = `${100 * (probability ?? 0)}%`;
    setText(share, !isLegal ? "illegal" : probability === undefined ? (isTaken ? "taken" : "") : inPercent(probability));
    node.classList.toggle("is-taken", isTaken);
    node.classList.toggle("is-illegal", !isLegal);
    node.ariaCurrent = isTaken ? "true" : null;
  }

  return { node, show };
}

function inPercent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** One number of an action: the mean and a deviation on either side, on the scale of its bounds. */
function makeNumber([low, high], place) {
  const [spread, taken, words] = [element("span", { class: "spread" }), element("span", { class: "taken" }), element("span")];
  const node = element("div", { class: "number-bar" }, element("span", { class: "bar-name" }, `${place + 1}`),
    element("div", { class: "bar-track" }, spread, taken), words);
  const reach = { low: low ?? -1, high: high ?? 1 };

  function show(thought) {
    if (low === null) reach.low = Math.min(reach.low, thought.low, thought.taken);
    if (high === null) reach.high = Math.max(reach.high, thought.high, thought.taken);
    const at = (value) => 100 * Math.min(1, Math.max(0, (value - reach.low) / (reach.high - reach.low || 1)));
    spread.style.left = `${at(thought.low)}%`;
    spread.style.width = `${at(thought.high) - at(thought.low)}%`;
    taken.style.left = `${at(thought.taken)}%`;
    const range = `${number(thought.low)} to ${number(thought.high)}`;
    setText(words, thought.high > thought.low ? `${number(thought.mean)} (${range})` : number(thought.taken));
  }

  return { node, show };
}
