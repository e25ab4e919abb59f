/** The settings of a game: opponent, seat, checkpoint, how freely the network plays and how far it looks ahead. */

import { element } from "../dom.js";
import { whole } from "../format.js";

const SEATS = [["first", "You move first"], ["second", "You move second"], ["random", "Drawn for each game"]];
const MANNERS = [["0", "its best move"], ["1", "moves drawn as in training"]];

function select(id, label, options, chosen, change) {
  const input = element("select", { id, on: { change: () => change(input.value) } },
    options.map(([value, text]) => element("option", { value, selected: String(value) === String(chosen) }, text)));
  return element("div", { class: "setting" }, element("label", { for: id }, label), input);
}

/** What an opponent is called in the list. */
function opponentName(name, run) {
  if (name === "run") return run;
  if (name.startsWith("minimax:")) return `minimax, ${name.slice(8)} moves ahead`;
  return { greedy: "greedy, one move ahead", random: "random moves", perfect: "perfect play", person: "another person here" }[name] ?? name;
}

/** A checkpoint's folder as a step: "step_00010000" is "10,000 steps". */
function checkpointName(name) {
  const step = /^step_(\d+)$/.exec(name);
  return step ? `${whole(Number(step[1]))} steps` : name;
}

/**
 * The settings of a table of the server.
 * @param {function(Object)} restart gets what changed; the game begins anew with it
 * @param {function(number)} strengthen gets the simulations of the search from now on
 */
export function makeSetup(table, { restart, strengthen }) {
  const rows = [];
  if (table.checkpoints.length > 1) {
    const options = [...table.checkpoints].reverse().map((name) => [name, checkpointName(name)]);
    rows.push(select("play-checkpoint", "Checkpoint", options, table.checkpoint, (checkpoint) => restart({ checkpoint })));
  }
  if (table.opponents.length > 0) {
    const names = table.opponents.map((name) => [name, opponentName(name, table.run)]);
    if (!table.opponents.includes(table.opponent)) names.push([table.opponent, opponentName(table.opponent, table.run)]);
    rows.push(select("play-opponent", "Opponent", names, table.opponent, (opponent) => restart({ opponent })));
  }
  if (table.num_players > 1 && table.opponent !== "person") {
    rows.push(select("play-seat", "Seat", SEATS, table.seat, (seat) => restart({ seat })));
  }
  if (table.opponent === "run") {
    rows.push(select("play-manner", "It plays", MANNERS, table.temperature, (value) => restart({ temperature: Number(value) })));
    rows.push(table.search.strengths.length > 0 ? strengthSlider(table, strengthen) : noSearch(table));
  }
  return element("div", { class: "settings" }, rows);
}

function strengthSlider(table, strengthen) {
  const { strengths } = table.search;
  const words = (place) => (strengths[place] === 0 ? "no search" : `${strengths[place]} simulations`);
  const first = Math.max(0, strengths.indexOf(table.simulations));
  const output = element("output", { for: "play-strength" }, words(first));
  const input = element("input", {
    type: "range", id: "play-strength", min: 0, max: strengths.length - 1, step: 1, value: first, "aria-valuetext": words(first),
    on: {
      input: () => {
        output.textContent = words(Number(input.value));
        input.setAttribute("aria-valuetext", words(Number(input.value)));
      },
      change: () => strengthen(strengths[Number(input.value)]),
    },
  });
  return element("div", { class: "setting" }, element("label", { for: "play-strength" }, "Looks ahead"),
    element("span", { class: "slider-and-words" }, input, output));
}

function noSearch(table) {
  return element("details", { class: "no-search" },
    element("summary", {}, "It plays without search"), element("p", { class: "quiet" }, table.search.reason));
}
