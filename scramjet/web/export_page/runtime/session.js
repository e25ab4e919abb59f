/** A visitor's game: who plays which seat, what the network thinks and does, and the way back. Knows no page. */

const EVERYONE = -1; // the network plays all seats

class Session {
  constructor(game, network, random = Math.random) {
    this.game = game;
    this.network = network;
    this.random = random;
    this.visitor = EVERYONE; // the seat or agent that the visitor plays
    this.temperature = 0;
    this.history = [];
    this.begin();
  }

  get world() {
    return this.game.world;
  }

  begin() {
    const word = () => Math.floor(this.random() * 2 ** 32);
    this.game.begin([word(), word()]);
    this.states = $.range(this.world.numPlayers).map(() => this.network.initialState);
    this.history = [];
    this.last = null;
    this.forgetThoughts();
  }

  forgetThoughts() {
    this.thoughts = new Map();
  }

  /** What the network thinks of a player's position: { logits, value, state, mask }, computed once. */
  think(player) {
    if (!this.thoughts.has(player)) {
      const output = this.network.forward(this.game.observation(player), this.states[player]);
      this.thoughts.set(player, { ...output, mask: this.game.mask(player) });
    }
    return this.thoughts.get(player);
  }

  /** Whose thoughts are shown: those of the visitor's place when it acts, else of the first who does. */
  get thinker() {
    const { actors } = this.game;
    return actors.includes(this.visitor) ? this.visitor : (actors[0] ?? 0);
  }

  /** Whether the game waits for the visitor. */
  get isVisitorsTurn() {
    return !this.game.isOver && this.visitor !== EVERYONE && this.game.actors.includes(this.visitor);
  }

  isLegal(action) {
    const mask = this.game.mask(this.visitor);
    return mask === null || mask.read(action);
  }

  networkAction(player) {
    const { logits, mask } = this.think(player);
    return policyAction(this.network.policy.distribution, logits, mask, this.temperature, this.random);
  }

  /** One step of the game: the visitor's action where it is the visitor's turn, the network's for all others. */
  step(action = null) {
    const { actors } = this.game;
    const isVisitors = this.isVisitorsTurn;
    this.history.push({ game: this.game.snapshot(), states: [...this.states], last: this.last, isVisitors });
    const chosen = new Map(actors.map((player) => [player, isVisitors && player === this.visitor ? action : this.networkAction(player)]));
    for (const player of actors) this.states[player] = this.think(player).state;
    this.last = { actors, chosen };
    this.game.step(this.world.playedBy === "agents" ? this.forAll(chosen) : [chosen.get(actors[0])]);
    this.forgetThoughts();
  }

  /** The actions of all agents; those who have died do the first thing there is, which counts for nothing. */
  forAll(chosen) {
    const { kind, sizes, shape } = this.world.action;
    const nothing = kind === "choice" ? 0 : new Array(kind === "choices" ? sizes.length : shape.reduce((a, b) => a * b, 1)).fill(0);
    return $.range(this.world.numPlayers).map((player) => chosen.get(player) ?? nothing);
  }

  /** Back to the visitor's last decision, or one step where the visitor only watches. */
  undo() {
    while (this.history.length > 0) {
      const { game, states, last, isVisitors } = this.history.pop();
      this.game.restore(game);
      this.states = states;
      this.last = last;
      if (isVisitors || this.visitor === EVERYONE) break;
    }
    this.forgetThoughts();
  }

  get canUndo() {
    return this.visitor === EVERYONE ? this.history.length > 0 : this.history.some(({ isVisitors }) => isVisitors);
  }

  /** The return of each player so far. */
  get returns() {
    const { record } = this.game;
    return this.world.playedBy === "one" ? [record._return] : record._returns.values();
  }

  /** Probabilities of the choices of whoever thinks, likeliest first; empty where actions are no single choice. */
  get preferences() {
    if (this.world.action.kind !== "choice" || this.game.isOver) return [];
    const { logits, mask } = this.think(this.thinker);
    const shares = softmax(legalLogits(logits, mask)).map((probability, action) => ({ action, probability }));
    return shares.filter(({ action }) => mask === null || mask.read(action)).sort((a, b) => b.probability - a.probability);
  }
}
