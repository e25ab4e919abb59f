/** The page itself: controls, keys, clicks and the clock around a visitor's session. */

const THINKING_MS = 450;

class Page {
  constructor(session, facts, random) {
    this.session = session;
    this.facts = facts;
    this.timer = null;
    this.heldAction = null;
    this.random = random;
    this.find();
    this.fillControls();
    this.listen();
    this.newGame();
  }

  get world() {
    return this.session.world;
  }

  find() {
    const names = ["who", "style", "speed", "clock", "new", "undo", "pause", "step", "board", "text", "status", "actions", "values", "thoughts", "thinking", "value", "check"];
    this.parts = Object.fromEntries(names.map((name) => [name, document.getElementById(name)]));
  }

  /** The choice of seats, and the actions as buttons or, where they are several numbers, as fields. */
  fillControls() {
    const { who, actions, values, clock } = this.parts;
    const { numPlayers, playedBy, action } = this.world;
    const seats = numPlayers === 1 ? ["You play"] : playedBy === "seats" && numPlayers === 2 ? ["You play first", "You play second"] : $.range(numPlayers).map((k) => `You play as ${k + 1}`);
    const watch = element("option", { value: String(EVERYONE), textContent: numPlayers > 1 ? "The network plays itself" : "The network plays" });
    who.replaceChildren(...seats.map((textContent, k) => element("option", { value: String(k), textContent })), watch);
    who.value = numPlayers > 1 ? "0" : String(EVERYONE);
    clock.checked = this.world.moves;
    const names = actionNames(this.world);
    this.buttons = names.length > MOST_BUTTONS ? [] : names.map((textContent, k) => element("button", { type: "button", textContent, onclick: () => this.act(k) }));
    actions.replaceChildren(...this.buttons);
    this.fields = action.kind === "choice" ? [] : this.makeFields(action);
    const go = element("button", { type: "button", textContent: "Do it", onclick: () => this.act(this.fieldValues()) });
    values.replaceChildren(...(this.fields.length > 0 ? [...this.fields.map(({ label }) => label), go] : []));
  }

  makeFields({ kind, sizes, low, high }) {
    const count = kind === "choices" ? sizes.length : low.length;
    return $.range(count).map((k) => {
      const bounds = kind === "choices" ? { min: 0, max: sizes[k] - 1, step: 1, value: 0 } : { min: Math.max(low[k], -10), max: Math.min(high[k], 10), step: "any", value: 0 };
      const input = element("input", { type: "range", ...bounds });
      return { input, label: element("label", {}, `${this.world.actionNames[k] ?? `Action ${k + 1}`} `, input) };
    });
  }

  fieldValues() {
    return this.fields.map(({ input }) => Number(input.value));
  }

  listen() {
    const { parts } = this;
    parts.who.onchange = () => this.newGame();
    parts.style.onchange = () => (this.session.temperature = Number(parts.style.value));
    parts.new.onclick = () => this.newGame();
    parts.undo.onclick = () => this.undo();
    parts.pause.onclick = () => (this.isPaused ? this.go() : this.halt());
    parts.step.onclick = () => this.stepOnce();
    parts.clock.onchange = () => this.go();
    parts.thinking.ontoggle = () => this.draw();
    parts.board.onclick = (event) => {
      const box = parts.board.getBoundingClientRect();
      const action = this.session.game.actionAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
      if (action !== null) this.act(action);
    };
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("keyup", () => (this.heldAction = null));
  }

  onKey(event) {
    const isField = event.target instanceof Element && event.target.closest("input, select, textarea");
    if (isField || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "u") return void this.undo();
    if (event.key === "n") return void this.newGame();
    const action = keyAction(this.world, event.key);
    if (action === null || this.session.visitor === EVERYONE) return;
    event.preventDefault();
    this.heldAction = action;
    if (!this.hasClock) this.act(action);
  }

  /** Whether the game goes on by itself while the visitor plays. */
  get hasClock() {
    return this.world.playedBy !== "seats" && this.session.visitor !== EVERYONE && this.parts.clock.checked;
  }

  get isWatching() {
    return this.session.visitor === EVERYONE;
  }

  newGame() {
    this.session.visitor = Number(this.parts.who.value);
    this.session.temperature = Number(this.parts.style.value);
    this.session.begin();
    this.go();
  }

  undo() {
    if (!this.session.canUndo) return;
    this.session.undo();
    this.halt();
  }

  halt() {
    clearTimeout(this.timer);
    this.isPaused = true;
    this.draw();
  }

  /** Let whoever is next act in due time: the network, or the visitor against the clock. */
  go() {
    clearTimeout(this.timer);
    this.isPaused = false;
    this.draw();
    if (this.session.game.isOver) return;
    const perSecond = Number(this.parts.speed.value);
    if (this.isWatching || this.hasClock) this.timer = setTimeout(() => this.tick(), 1000 / perSecond);
    else if (!this.session.isVisitorsTurn) this.timer = setTimeout(() => this.tick(), THINKING_MS);
  }

  tick() {
    const resting = this.fields.length > 0 ? this.fieldValues() : (this.heldAction ?? this.restingAction());
    this.session.step(this.session.isVisitorsTurn ? resting : null);
    this.go();
  }

  /** What is done against the clock while no key is held: the middle one of three actions, else what was done last. */
  restingAction() {
    const { sizes } = this.world.action;
    if (sizes[0] === 3) return 1;
    const last = this.session.last?.chosen.get(this.session.visitor) ?? 0;
    return this.session.isLegal(last) ? last : 0;
  }

  stepOnce() {
    this.halt();
    if (!this.session.game.isOver && !this.session.isVisitorsTurn) this.session.step();
    this.draw();
  }

  /** The visitor acts, where the game waits for that and the action is legal. */
  act(action) {
    if (!this.session.isVisitorsTurn) return;
    if (typeof action === "number" && !this.session.isLegal(action)) return;
    if (this.hasClock && typeof action === "number") {
      this.heldAction = action;
      return;
    }
    this.session.step(action);
    this.go();
  }

  draw() {
    const { session, parts } = this;
    const isVisitors = session.isVisitorsTurn;
    drawPicture(session.game.picture(this.isWatching || session.game.isOver ? null : session.visitor), parts.board, parts.text);
    parts.status.textContent = statusText(session);
    parts.undo.disabled = !session.canUndo;
    this.buttons.forEach((button, action) => {
      button.disabled = !isVisitors || !session.isLegal(action);
      button.hidden = button.disabled && this.buttons.length > MANY_BUTTONS;
    });
    parts.actions.hidden = this.isWatching || this.buttons.length === 0;
    parts.values.hidden = this.isWatching || this.fields.length === 0;
    parts.pause.textContent = this.isPaused ? "Go on" : "Pause";
    const runs = this.isWatching || this.hasClock;
    for (const part of [parts.pause, parts.speed.parentElement]) part.hidden = !runs;
    parts.step.hidden = !this.isWatching;
    parts.clock.parentElement.hidden = this.isWatching || this.world.playedBy === "seats";
    parts.board.classList.toggle("waits", isVisitors && session.game.rules.action_at !== undefined);
    const canShow = parts.thinking.open && (!this.world.hides || isVisitors || this.isWatching);
    if (canShow) drawThoughts(session, parts.thoughts, parts.value, this.facts.valueScale);
    else parts.thoughts.replaceChildren();
  }
}

/** Play the recorded game and say in the footer whether this page plays as it was trained. */
function checkItself(world, rules, network, recorded, place) {
  let difference;
  try {
    difference = gameDifference(new Game(world, rules), network, recorded);
  } catch (error) {
    difference = String(error);
  }
  place.textContent = difference === null ? "Checked: rules and network play as they were trained." : `This page does not play as it was trained (${difference}).`;
  place.classList.toggle("wrong", difference !== null);
}

function decodedWeights(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function startPage(data) {
  const network = new Network(data.policy, decodedWeights(document.getElementById("weights").textContent.trim()));
  const session = new Session(new Game(data.world, rules), network);
  globalThis.scramjetPage = new Page(session, data.facts);
  const check = () => checkItself(data.world, rules, network, data.recorded, document.getElementById("check"));
  setTimeout(check, 200);
}
