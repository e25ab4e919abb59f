/** What stands beside the board: whose move it is, hints, and the moves so far. */

import { element, replace } from "../dom.js";
import { number, percent } from "../format.js";

const MOST_HINTS = 12;
const EARLY = "Verdicts of perfect play begin with 30 free cells. Before that an opening book knows the best moves of some positions.";
const SIDES = ["first", "second"];

/** What a player of a state is called: "you" where only one person plays. */
export function nameOf(state, player) {
  const who = state.players[player];
  if (!who.is_person) return who.name;
  return state.players.filter((each) => each.is_person).length === 1 ? "you" : `player ${player + 1}`;
}

/** The same at the beginning of a sentence; names of players stay as they are. */
function firstName(state, player) {
  const name = nameOf(state, player);
  return state.players[player].is_person ? name.charAt(0).toUpperCase() + name.slice(1) : name;
}

/** Whose move it is, or how the game ended: {text, kind}, kind being "turn", "wait", "good", "bad" or "even". */
export function newsOf(state) {
  const isAlone = state.players.length === 1;
  if (state.result) return isAlone ? endAlone(state) : endOfGame(state);
  const last = isAlone || state.played.length === 0 ? "" : `${lastMove(state)} `;
  if (state.person_to_move === null) {
    return { text: `${last}${firstName(state, state.to_move[0])} is thinking…`, kind: "wait" };
  }
  if (isAlone) {
    return { text: `Step ${state.num_moves}, return ${number(state.returns[0])}`, kind: "turn" };
  }
  const name = nameOf(state, state.person_to_move);
  return { text: `${last}${name === "you" ? "Your move." : `${firstName(state, state.person_to_move)} to move.`}`, kind: "turn" };
}

function lastMove(state) {
  const { player, name } = state.played.at(-1);
  return `${firstName(state, player)} played ${name}.`;
}

function endAlone(state) {
  const how = state.result.was_cut ? "Time is up" : "The end";
  return { text: `${how} after ${state.num_moves} steps: return ${number(state.returns[0])}.`, kind: "even" };
}

function endOfGame(state) {
  const { result, players } = state;
  if (result.is_draw) return { text: "A draw.", kind: "even" };
  const winner = result.winners[0];
  const people = players.filter((each) => each.is_person).length;
  const why = result.forfeited === null ? "" : ` ${firstName(state, result.forfeited)} made an illegal move.`;
  const kind = people !== 1 ? "even" : players[winner].is_person ? "good" : "bad";
  return { text: `${firstName(state, winner)} won${winnings(state)}.${why}`, kind };
}

/** What the only person won or lost, where games end in other numbers than 1 and -1. */
function winnings({ result, players }) {
  const people = players.flatMap((each, player) => (each.is_person ? [player] : []));
  if (people.length !== 1 || result.returns.every((each) => Math.abs(each) <= 1)) return "";
  const paid = result.returns[people[0]];
  return `: ${paid > 0 ? "+" : ""}${number(paid)} for you`;
}

/** The moves so far, in pairs where two play in turns. */
export function makeMoveList() {
  const list = element("ol", { class: "move-list", tabindex: "0", "aria-label": "Moves so far" });
  return {
    node: list,
    show(state) {
      const first = state.num_moves - state.played.length;
      replace(list, ...state.played.map((move, place) => element("li", { class: `side-${SIDES[move.player] ?? "other"}` },
        element("span", { class: "quiet" }, `${first + place + 1}.`), ` ${move.name} `,
        state.players.length > 1 ? element("span", { class: "quiet" }, nameOf(state, move.player)) : null)));
      list.scrollTop = list.scrollHeight;
    },
  };
}

/** A hint of the server: bars of the network's probabilities, its value, and verdicts of perfect play. */
export function showHint(root, hint, table) {
  if (hint.suggests) {
    replace(root, element("p", {}, `The network would choose ${hint.suggests.map(number).join(", ")}.`), value(hint, table));
    return;
  }
  const hasShares = hint.moves.some((move) => move.probability !== null);
  const hasVerdicts = hint.moves.some((move) => move.verdict !== null);
  const moves = [...hint.moves].sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0));
  const rows = moves.slice(0, MOST_HINTS).map((move) => element("tr", {},
    element("th", { scope: "row" }, move.name),
    hasShares ? element("td", { class: "bar-cell" }, bar(move.probability)) : null,
    hasShares ? element("td", { class: "right" }, percent(move.probability)) : null,
    hasVerdicts ? element("td", {}, verdict(move.verdict)) : null));
  const others = moves.length - rows.length;
  const table_ = element("table", { class: "hint-table" },
    element("caption", { class: "visually-hidden" }, "What the network thinks of each move"), element("tbody", {}, rows));
  const isEarly = table.has_verdicts && !hint.moves.some((move) => move.verdict !== null && move.verdict !== "best");
  const early = isEarly ? element("p", { class: "quiet" }, EARLY) : null;
  replace(root, hasShares ? value(hint, table) : null, hasShares || hasVerdicts ? table_ : null,
    others > 0 ? element("p", { class: "quiet" }, `and ${others} less likely ones`) : null, early);
}

function bar(share) {
  const inner = element("span", {});
  inner.style.width = `${100 * (share ?? 0)}%`;
  return element("div", { class: "hint-bar" }, inner);
}

function verdict(text) {
  if (text === null) return "";
  const kind = text.includes("win") || text === "best" ? "good" : text.includes("loss") ? "bad" : "";
  return element("span", { class: `mark ${kind}` }, text.replace(/^a win/, "wins").replace(/^a loss/, "loses").replace(/^a draw/, "draw"));
}

function value(hint, table) {
  if (hint.value === null) return null;
  const chances = hint.chances === null || hint.chances === undefined ? "" : `, chances ${percent(hint.chances)}`;
  const sign = hint.value > 0 ? "+" : "";
  return element("p", { class: "hint-value" }, `${table.adviser} expects ${sign}${hint.value.toFixed(2)} for you${chances}.`);
}
