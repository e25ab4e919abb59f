/** A game of one world: its record in one buffer, its rules, the engine's clock. Parallels scramjet/engine/worlds. */

const HEADER_BYTES = 32;

/** A record whose fields are properties over one buffer: numbers, and arrays for fields that are such. */
function makeRecord(layout, buffer) {
  const record = {};
  for (const { name, dtype, shape, offset } of layout.fields) {
    const count = shape.reduce((a, b) => a * b, 1);
    const data = new KINDS[dtype](buffer, offset, count);
    const array = new NdArray(data, shape.length > 0 ? shape : [1], dtype);
    const isScalar = shape.length === 0;
    Object.defineProperty(record, name, {
      get: isScalar ? () => array.read(0) : () => array,
      set: isScalar ? (value) => array.write(0, value) : undefined,
    });
  }
  Object.defineProperty(record, "$key", { value: new Uint32Array(buffer, 0, 2) });
  return Object.preventExtensions(record);
}

/** Zeros for an observation of a space: an array, or for a dictionary an object of them. */
function makeObservation(space) {
  if (space.entries === undefined) return NdArray.zeros(space.shape, space.dtype);
  return Object.fromEntries(space.entries.map(([name, inner]) => [name, makeObservation(inner)]));
}

class Game {
  constructor(world, rules) {
    this.world = world;
    this.rules = rules;
    this.buffer = new ArrayBuffer(world.layout.size);
    this.bytes = new Uint8Array(this.buffer);
    this.record = makeRecord(world.layout, this.buffer);
    this.isOver = true;
  }

  /** Begin the first episode of a key, two words of 32 bits. */
  begin(key, index = 0) {
    const s = this.record;
    s.$key.set(key);
    s._index = index;
    s._episode = 0;
    this.beginEpisode();
  }

  /** Begin the next episode of the same key. */
  beginNext() {
    this.record._episode += 1;
    this.beginEpisode();
  }

  beginEpisode() {
    const { record: s, world } = this;
    this.bytes.fill(0, HEADER_BYTES);
    s._draw = 0;
    s._steps = 0;
    s._return = 0;
    this.rules.reset(null, s);
    if (world.playedBy === "agents") {
      for (let k = 0; k < world.numPlayers; k++) $.set(s._alive, k, this.isAlive(k));
    }
    this.isOver = false;
  }

  isAlive(player) {
    return this.rules.alive === undefined || $.truth(this.rules.alive(null, this.record, player));
  }

  /** The players who act now: all that live, or the one whose turn it is. */
  get actors() {
    const { world } = this;
    if (world.playedBy === "one") return [0];
    if (world.playedBy === "seats") return [this.seat];
    return $.range(world.numPlayers).filter((k) => $.get(this.record._alive, k) !== 0);
  }

  get seat() {
    const seat = this.rules.seat === undefined ? 0 : number(this.rules.seat(null, this.record));
    return Math.min(Math.max(seat, 0), this.world.numPlayers - 1);
  }

  /** What a player sees. */
  observation(player) {
    const obs = makeObservation(this.world.observation);
    this.rules.observe(null, this.record, obs._policy ?? obs, player);
    this.rules.observe_critic?.(null, this.record, obs._critic, player);
    return obs;
  }

  /** Which choices a player has, an array of truth values; null where the world has no mask. */
  mask(player) {
    if (this.world.maskSize === 0 || this.rules.mask === undefined) return null;
    const mask = NdArray.zeros([this.world.maskSize], "bool");
    mask.data.fill(1);
    this.rules.mask(null, this.record, mask, player);
    return mask;
  }

  /** One action as rules take it: a number, or an array for several numbers. */
  fitted(action) {
    const { kind, sizes, shape } = this.world.action;
    const fit = (value, size) => Math.min(Math.max(value, 0), size - 1);
    if (kind === "choice") return fit(action, sizes[0]);
    const array = NdArray.zeros(shape, kind === "choices" ? "int64" : "float32");
    flattened(action).forEach((value, k) => array.write(k, kind === "choices" ? fit(value, sizes[k]) : value));
    return array;
  }

  /** Apply the actions of those who act (by player; agents: all). Returns { rewards, terminated, truncated }. */
  step(actions) {
    const { world } = this;
    if (world.playedBy === "agents") return this.stepAgents(actions);
    const { record: s } = this;
    const rewards = NdArray.zeros([world.numPlayers], "float32");
    const action = this.fitted(actions[0]);
    let ended;
    if (world.playedBy === "one") {
      const [gain, done] = this.rules.step(null, s, action);
      ended = $.truth(done);
      s._return += number(gain);
      rewards.write(0, number(gain));
    } else {
      ended = $.truth(this.rules.step(null, s, action, rewards));
      for (let k = 0; k < world.numPlayers; k++) $.set(s._returns, k, $.get(s._returns, k) + rewards.read(k));
    }
    s._steps += 1;
    const cut = s._steps >= world.maxSteps && !ended;
    this.isOver = ended || cut;
    return { rewards: rewards.values(), terminated: [ended], truncated: [cut] };
  }

  stepAgents(actions) {
    const { record: s, world } = this;
    const { numPlayers } = world;
    const rewards = NdArray.zeros([numPlayers], "float32");
    const done = $.truth(this.rules.step(null, s, this.joint(actions), rewards));
    s._steps += 1;
    const isLate = s._steps >= world.maxSteps;
    const [terminated, truncated] = [[], []];
    let someoneLives = false;
    for (let k = 0; k < numPlayers; k++) {
      const wasAlive = $.get(s._alive, k) !== 0;
      const isAlive = wasAlive && this.isAlive(k);
      if (wasAlive) $.set(s._returns, k, $.get(s._returns, k) + rewards.read(k));
      else rewards.write(k, 0);
      $.set(s._alive, k, isAlive);
      terminated.push(wasAlive && (done || !isAlive));
      truncated.push(wasAlive && isLate && !terminated[k]);
      someoneLives ||= isAlive;
    }
    this.isOver = done || isLate || !someoneLives;
    return { rewards: rewards.values(), terminated, truncated };
  }

  /** The actions of all agents in one array. */
  joint(actions) {
    const { kind, shape } = this.world.action;
    const array = NdArray.zeros([this.world.numPlayers, ...shape], kind === "box" ? "float32" : "int64");
    actions.forEach((action, k) => array.set([k], this.fitted(action)));
    return array;
  }

  snapshot() {
    return { bytes: this.bytes.slice(), isOver: this.isOver };
  }

  restore({ bytes, isOver }) {
    this.bytes.set(bytes);
    this.isOver = isOver;
  }

  /**
   * The picture that a player may see, or with null all of it: an array [height, width, 3], a text, or null where the
   * world has neither.
   */
  picture(player = null) {
    const { render, render_for, ascii, ascii_for } = this.rules;
    if (player !== null && this.world.hides) {
      if (render_for !== undefined) return render_for(null, this.record, player);
      return ascii_for !== undefined ? ascii_for(null, this.record, player) : null;
    }
    if (render !== undefined) return render(null, this.record);
    return ascii !== undefined ? ascii(null, this.record) : null;
  }

  /** The action at a place of the picture, given as shares of its width and height; null where there is none. */
  actionAt(x, y) {
    const action = this.rules.action_at === undefined ? null : this.rules.action_at(null, this.record, x, y);
    return action === null || action === undefined || action < 0 ? null : number(action);
  }
}
