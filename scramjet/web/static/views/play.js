/** Play: a person at the board, against a checkpoint, a scripted player or another person, or alone. */

import { element, replace, setText } from "../parts/dom.js";
import { makeBoard } from "../parts/play/board.js";
import { showChoice } from "../parts/play/choice.js";
import { isTyping, keysText, makeClock, moveOfKey, numbersOfKey } from "../parts/play/keys.js";
import { ALL_SHOWN, makeMoves, makeSliders } from "../parts/play/moves.js";
import { makeMoveList, newsOf, showHint } from "../parts/play/panels.js";
import { makeSetup } from "../parts/play/setup.js";

const SPEEDS = [2, 5, 10, 15, 30];
const USUAL_SPEED = 15;

export async function show(root, parameters, page) {
  if (!parameters.name && !parameters.world) return showChoice(root, page);
  const game = new PlayView(root, parameters, page);
  return () => game.end();
}

/** The first message of a game, from the address of the page. */
function requestOf({ name, world, checkpoint, opponent, seat, seed }) {
  const request = { do: "start", seat, opponent };
  if (name) Object.assign(request, { run: name, checkpoint });
  else request.world = world;
  if (seed !== undefined && seed !== "") request.seed = Number(seed);
  return request;
}

class PlayView {
  constructor(root, parameters, page) {
    this.page = page;
    this.root = root;
    this.request = requestOf(parameters);
    this.table = null;
    this.state = null;
    this.isWaiting = false; // for the answer to a move
    this.held = []; // keys that are down, the last one last
    this.heldMove = null; // the move whose button is down
    this.lastMove = null;
    this.clock = makeClock(() => this.tick(), USUAL_SPEED);
    this.build(parameters.name || parameters.world);
    this.onKeyDown = (event) => this.keyDown(event);
    this.onKeyUp = (event) => this.keyUp(event);
    this.onBlur = () => { this.held = []; };
    document.addEventListener("keydown", this.onKeyDown);
    document.addEventListener("keyup", this.onKeyUp);
    window.addEventListener("blur", this.onBlur);
    this.socket = page.socket("/api/play", {
      open: () => this.socket.send(this.request),
      message: (message) => this.hear(message),
    });
  }

  end() {
    this.clock.stop();
    this.socket.close();
    document.removeEventListener("keydown", this.onKeyDown);
    document.removeEventListener("keyup", this.onKeyUp);
    window.removeEventListener("blur", this.onBlur);
  }

  build(name) {
    this.title = element("h1", {}, name);
    const back = this.request.run ? element("a", { href: `#/run/${encodeURIComponent(this.request.run)}` }, "The run") : null;
    this.note = element("p", { class: "advice", hidden: true });
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.news = element("p", { class: "news", role: "status" }, "Loading…");
    this.board = makeBoard({ click: (x, y) => this.click(x, y), hover: (number) => this.moves?.mark(number) });
    this.controls = element("div", { class: "controls" });
    this.undo = this.button("Undo", "u", () => this.send({ do: "undo" }));
    this.hint = this.button("Hints", "h", () => this.toggleHints());
    this.hint.setAttribute("aria-pressed", "false");
    this.again = this.button("New game", "n", () => this.send({ do: "new" }));
    this.clockBox = element("div", { class: "clock", hidden: true });
    this.hints = element("div", { class: "hints" });
    this.list = makeMoveList();
    this.setup = element("div", {});
    this.text = element("pre", {});
    this.asText = element("details", { class: "as-text" }, element("summary", {}, "The board as text"), this.text);
    const bar = element("div", { class: "play-bar" }, this.undo, this.hint, this.again);
    this.hintCard = element("section", { class: "card", hidden: true }, element("h2", {}, "Hints"), this.hints);
    this.listCard = element("section", { class: "card" }, element("h2", {}, "Moves"), this.list.node);
    replace(this.root, element("div", { class: "view-head" }, this.title, back), this.problem, this.note,
      element("div", { class: "play-view" },
        element("div", { class: "play-table" }, this.news, this.board.node, this.controls, bar),
        element("div", { class: "play-side" }, this.hintCard,
          element("section", { class: "card" }, element("h2", {}, "Game"), this.setup, this.clockBox, this.asText),
          this.listCard)));
  }

  button(text, key, press) {
    return element("button", { type: "button", title: `Key ${key.toUpperCase()}`, "aria-keyshortcuts": key, on: { click: press } }, text);
  }

  send(message) {
    this.problem.hidden = true;
    this.socket.send(message);
  }

  hear(message) {
    if (message.kind === "error") this.showProblem(message.error);
    else if (message.kind === "status") setText(this.news, `${message.text}…`);
    else if (message.kind === "table") this.setTable(message);
    else if (message.kind === "strength") this.request.simulations = message.simulations;
    else if (message.kind === "hint") this.showHint(message);
    else this.setState(message);
  }

  showProblem(text) {
    this.isWaiting = false;
    this.problem.hidden = false;
    setText(this.problem, text);
    if (this.state === null) setText(this.news, "");
  }

  setTable(table) {
    this.table = table;
    this.state = null;
    this.clock.stop();
    this.page.title(`Play ${table.title}`);
    setText(this.title, table.run ? `${table.title} with ${table.adviser}` : table.title);
    setText(this.note, table.note);
    this.note.hidden = table.note === "";
    this.moves = table.bounds ? null : makeMoves(table.moves, {
      choose: (number) => this.isRealTime || this.move(number),
      hover: (number) => this.board.highlight(number),
      hold: (number) => this.hold(number),
    });
    this.sliders = table.bounds ? makeSliders(table.bounds, () => this.pressStep()) : null;
    replace(this.controls, (this.moves ?? this.sliders).node);
    this.hint.hidden = !table.adviser && !table.has_verdicts;
    this.listCard.hidden = table.num_players === 1;
    this.board.node.classList.toggle("is-clickable", table.is_clickable);
    const setup = makeSetup(table, {
      restart: (changed) => this.send(Object.assign(this.request, { seed: undefined }, changed)),
      strengthen: (simulations) => this.send({ do: "strength", simulations }),
    });
    replace(this.setup, setup, element("p", { class: "quiet" }, keysText(table)));
    this.buildClock();
  }

  /** For worlds for one: a box that makes them go on by themselves, and how fast. */
  buildClock() {
    this.clockBox.hidden = this.table.num_players > 1;
    const box = element("input", { type: "checkbox", id: "real-time" });
    box.checked = this.table.is_real_time;
    box.addEventListener("change", () => {
      this.clock.stop();
      this.showNews();
    });
    this.realTime = box;
    const speed = element("select", { id: "speed", "aria-label": "Steps a second", on: { change: () => this.clock.setSpeed(Number(speed.value)) } },
      SPEEDS.map((each) => element("option", { value: each, selected: each === USUAL_SPEED }, `${each} steps a second`)));
    this.clock.setSpeed(USUAL_SPEED);
    replace(this.clockBox, element("label", { class: "field" }, box, "Real time"), speed);
  }

  setState(state) {
    this.isWaiting = state.person_to_move === null && state.result === null;
    const isNew = this.state === null || state.num_moves < this.state.num_moves;
    this.state = state;
    if (isNew && state.num_moves === 0) {
      this.clock.stop();
      this.lastMove = null;
    }
    if (state.result) this.clock.stop();
    this.showNews();
    this.board.show(state, this.table.title, this.table.moves.length > ALL_SHOWN);
    setText(this.text, state.text);
    this.asText.hidden = state.picture === null;
    this.board.node.classList.toggle("is-yours", state.person_to_move !== null);
    this.moves?.show(state.legal_moves);
    this.undo.disabled = !state.can_undo;
    this.again.classList.toggle("primary", state.result !== null);
    this.list.show(state);
    if (this.wantsHints && state.person_to_move !== null && !this.clock.isRunning) this.send({ do: "hint" });
    else if (state.result) replace(this.hints, element("p", { class: "quiet" }, "The game is over."));
  }

  /** Say whose move it is; of a world that is to go on by itself, that it waits for a key. */
  showNews() {
    if (this.state === null) return;
    const { text, kind } = newsOf(this.state);
    const begins = this.isRealTime && !this.state.result && !this.clock.isRunning;
    setText(this.news, begins ? "Press a key or hold a button to begin." : text);
    this.news.className = `news ${kind}`;
    this.sliders?.showButton(this.isRealTime ? "Start" : "Step", this.state.result !== null);
  }

  /** Whether the world is to go on by itself, once somebody presses a key. */
  get isRealTime() {
    return this.table.num_players === 1 && this.realTime.checked;
  }

  get wantsHints() {
    return this.hint.getAttribute("aria-pressed") === "true";
  }

  toggleHints() {
    const wants = !this.wantsHints;
    this.hint.setAttribute("aria-pressed", String(wants));
    this.hintCard.hidden = !wants;
    if (!wants) this.board.clearHint();
    else if (this.state?.person_to_move !== null) {
      replace(this.hints, element("p", { class: "quiet" }, "Asking…"));
      this.send({ do: "hint" });
    }
  }

  showHint(hint) {
    if (!this.wantsHints || hint.at !== this.state.num_moves) return;
    showHint(this.hints, hint, this.table);
    if (hint.moves) this.board.showHint(hint.moves);
  }

  get isPersons() {
    return this.state !== null && this.state.person_to_move !== null && !this.isWaiting;
  }

  click(x, y) {
    if (!this.table?.is_clickable || !this.isPersons) return;
    this.isWaiting = true;
    this.send({ do: "click", x, y });
  }

  move(number) {
    if (!this.isPersons || !this.state.legal_moves.some((move) => move.number === number)) return;
    this.isWaiting = true;
    this.lastMove = number;
    this.send({ do: "move", number });
  }

  act(values) {
    if (!this.isPersons) return;
    this.isWaiting = true;
    this.send({ do: "act", values });
  }

  /** One step of a world that goes on by itself: what is held, else what does nothing, else the last move again. */
  tick() {
    if (!this.isPersons) return;
    const key = this.held.at(-1);
    if (this.sliders) {
      const values = this.sliders.values();
      this.act((key && numbersOfKey(key, this.table.bounds, values)) ?? values);
      return;
    }
    const held = this.heldMove ?? (key ? moveOfKey(key, this.table.moves) : null);
    const number = held ?? this.table.idle ?? this.lastMove;
    if (number !== null) this.move(number);
  }

  keyDown(event) {
    if (isTyping(event) || this.table === null) return;
    const press = { u: this.undo, h: this.hint, n: this.again }[event.key.toLowerCase()];
    if (press && !press.hidden && !press.disabled) {
      event.preventDefault();
      if (!event.repeat) press.click();
      return;
    }
    const number = this.sliders ? null : moveOfKey(event.key, this.table.moves);
    const values = this.sliders ? numbersOfKey(event.key, this.table.bounds, this.sliders.values()) : null;
    if (number === null && values === null) return;
    event.preventDefault();
    if (!this.held.includes(event.key)) this.held.push(event.key);
    if (this.isRealTime) this.beginClock();
    else if (values !== null) this.act(values);
    else this.move(number);
  }

  keyUp(event) {
    this.held = this.held.filter((key) => key !== event.key);
  }

  /** A button of a move is held down, or let go (null). */
  hold(number) {
    this.heldMove = number;
    if (number !== null && this.isRealTime) this.beginClock();
  }

  pressStep() {
    if (this.isRealTime) this.beginClock();
    else this.act(this.sliders.values());
  }

  beginClock() {
    if (this.clock.isRunning || !this.isPersons) return;
    this.clock.start();
    this.tick();
  }
}
