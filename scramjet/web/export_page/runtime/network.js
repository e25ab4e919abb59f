/**
 * The network of a policy, forward for one observation: what scramjet/policies computes, within the rounding of
 * float32. A part is described by an object with its `op` (see network.py); features are Float32Arrays.
 */
class Network {
  constructor(policy, weights) {
    this.policy = policy;
    this.weights = weights;
    this.valueScale = 0; // how large the numbers are whose sum the last value was, beyond the value itself
  }

  /** The numbers of a tensor. */
  tensor({ at, shape }) {
    return this.weights.subarray(at, at + shape.reduce((a, b) => a * b, 1));
  }

  get initialState() {
    return new Float32Array(this.policy.stateSize);
  }

  /** Logits, value and the recurrent state after an observation. */
  forward(obs, state = this.initialState) {
    const { network, maxSymlog } = this.policy;
    const output = NETWORKS[network.op](this, network, this.prepared(obs), state);
    return maxSymlog === null ? output : { ...output, value: symexp(output.value, maxSymlog) };
  }

  /** An observation as float32, normalized where the policy does so. */
  prepared(obs, normalizer = this.policy.normalizer) {
    if (!(obs instanceof NdArray)) {
      const entries = Object.entries(obs);
      return Object.fromEntries(entries.map(([name, inner]) => [name, this.prepared(inner, normalizer?.entries?.[name] ?? null)]));
    }
    const flat = Float32Array.from(obs.values(), Number);
    if (normalizer === null || normalizer.mean === undefined) return flat;
    const [mean, scale, { clip }] = [this.tensor(normalizer.mean), this.tensor(normalizer.scale), normalizer];
    return flat.map((value, k) => Math.min(Math.max(Math.fround(value - mean[k]) * scale[k], -clip), clip));
  }

  run(part, input) {
    return PARTS[part.op](this, part, input);
  }

  encode(encoder, obs) {
    return encoder === null ? obs : this.run(encoder, obs);
  }

  /** Features through a recurrent core, and its state after them. */
  remember(core, features, state) {
    if (core === null) return { features, state };
    const size = core.stateSize / core.layers.length;
    const after = new Float32Array(core.stateSize);
    core.layers.forEach((layer, k) => {
      const stepped = CORES[core.op](this, layer, features, state.subarray(k * size, (k + 1) * size));
      after.set(stepped.state, k * size);
      features = stepped.features;
    });
    return { features, state: after };
  }
}

const NETWORKS = {
  shared: (net, part, obs, before) => {
    const trunk = net.run(part.trunk, net.encode(part.encoder, obs));
    const { features, state } = net.remember(part.core, trunk, before);
    return { logits: net.run(part.head, features), value: net.run(part.value, features)[0], state };
  },
  separate: (net, part, obs, before) => {
    const [outputs, states] = [[], []];
    let at = 0;
    for (const side of [part.actor, part.critic]) {
      const seen = side === part.actor ? (obs._policy ?? obs) : obs;
      const trunk = net.run(side.trunk, net.encode(side.encoder, seen));
      const size = side.core === null ? 0 : side.core.stateSize;
      const { features, state } = net.remember(side.core, trunk, before.subarray(at, at + size));
      outputs.push(net.run(side.head, features));
      states.push(...state);
      at += size;
    }
    return { logits: outputs[0], value: outputs[1][0], state: Float32Array.from(states) };
  },
  canonical: (net, part, obs, before) => {
    let [best, highest] = [0, -Infinity];
    part.obsSources.forEach((sources, k) => {
      const rank = sources.reduce((sum, from, i) => sum + obs[from] * part.order[i], 0);
      if (rank > highest) [best, highest] = [k, rank];
    });
    const { logits, value, state } = turned(net, part, obs, best, before);
    return { logits, value, state };
  },
  average: (net, part, obs, before) => {
    const all = part.obsSources.map((_, k) => turned(net, part, obs, k, before));
    const mean = (values) => values.reduce((a, b) => a + b, 0) / all.length;
    const logits = all[0].logits.map((_, action) => mean(all.map((one) => one.logits[action])));
    return { logits, value: mean(all.map((one) => one.value)), state: before };
  },
};

/** What a network says of a turned board, turned back. */
function turned(net, part, obs, which, before) {
  const board = Float32Array.from(part.obsSources[which], (from) => obs[from]);
  const { logits, value, state } = NETWORKS[part.network.op](net, part.network, board, before);
  return { logits: Float32Array.from(part.actionSources[which], (from) => logits[from]), value, state };
}

/** Planes [channels, height, width] of an image; convolutions take and give such objects. */
function planesOf(data, channels, height, width) {
  return { data, channels, height, width };
}

/** Numbers as planes: channels brought to the front, pixels divided. */
function channelsFirst(data, channels, isLast, divisor) {
  const cells = data.length / channels;
  return Float32Array.from(data, (_, k) => {
    const from = isLast ? (k % cells) * channels + Math.floor(k / cells) : k;
    return data[from] / divisor;
  });
}

/** A grid of symbols as planes, one for each value of each symbol. */
function symbolPlanes(source, { channels, sizes, starts }, cells) {
  const data = new Float32Array(channels * cells);
  let first = 0;
  sizes.forEach((size, symbol) => {
    for (let cell = 0; cell < cells; cell++) {
      data[(first + Number(source[cell * sizes.length + symbol]) - starts[symbol]) * cells + cell] = 1;
    }
    first += size;
  });
  return data;
}

/** The grids and positions of an observation as planes. */
function gridPlanes({ height, width, channels, entries }, obs) {
  const cells = height * width;
  const data = new Float32Array(channels * cells);
  let at = 0;
  for (const entry of entries) {
    const source = entry.name === null ? obs : obs[entry.name];
    if (entry.start !== undefined) data[at + (source[0] - entry.start[0]) * width + source[1] - entry.start[1]] = 1;
    else if (entry.sizes !== undefined) data.set(symbolPlanes(source, entry, cells), at);
    else data.set(channelsFirst(source, entry.channels, entry.isLast, entry.divisor), at);
    at += (entry.channels ?? 1) * cells;
  }
  return planesOf(data, channels, height, width);
}

function withRest(net, features, rest, obs) {
  return rest === null ? features : joinedFeatures([features, net.run(rest, obs)]);
}

function joinedFeatures(parts) {
  const all = new Float32Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Apply a function to numbers or planes. */
function each32(input, operation) {
  return input.data === undefined ? input.map(operation) : { ...input, data: input.data.map(operation) };
}

/** sign(x) (exp(|x|) - 1), numbers beyond `most` counting as that: as in scramjet/policies/layers.py. */
function symexp(number, most) {
  return Math.sign(number) * Math.expm1(Math.min(Math.abs(number), most));
}

const rectified = (value) => (value > 0 ? value : 0);

const PARTS = {
  flat: (net, { divisor }, obs) => (divisor === 1 ? obs : obs.map((value) => value / divisor)),
  one_hot: (net, { offsets, size }, obs) => {
    const hot = new Float32Array(size);
    offsets.forEach((offset, k) => (hot[obs[k] + offset] = 1));
    return hot;
  },
  embedding: (net, { offsets, table }, obs) => {
    const [rows, width] = [net.tensor(table), table.shape[1]];
    return joinedFeatures(offsets.map((offset, k) => rows.subarray((obs[k] + offset) * width, (obs[k] + offset + 1) * width)));
  },
  dict: (net, { entries }, obs) => joinedFeatures(entries.map(([name, inner]) => net.run(inner, obs[name]))),
  image: (net, part, obs) => {
    const data = channelsFirst(obs, part.channels, part.isLast, part.divisor);
    return net.run(part.layers, planesOf(data, part.channels, part.height, part.width)).data;
  },
  grid: (net, part, obs) => {
    const { data, channels } = net.run(part.layers, gridPlanes(part.planes, obs));
    return withRest(net, part.pools ? pooled(data, channels) : data, part.planes.rest, obs);
  },
  value_propagation: (net, part, obs) => plannedFeatures(net, part, obs),
  sequence: (net, { parts }, input) => parts.reduce((features, part) => net.run(part, features), input),
  tanh: (net, part, input) => each32(input, Math.tanh),
  relu: (net, part, input) => each32(input, rectified),
  linear: (net, { weight, bias }, input) => {
    const [matrix, added, size] = [net.tensor(weight), net.tensor(bias), weight.shape[1]];
    return added.map((start, row) => {
      let sum = start;
      for (let k = 0, at = row * size; k < size; k++, at++) sum += matrix[at] * input[k];
      return sum;
    });
  },
  gaussian: (net, part, input) =>
    joinedFeatures([net.run(part.mean, input), part.same === undefined ? net.run(part.linear, input) : net.tensor(part.same)]),
  two_hot: (net, { layer, bins }, input) => {
    const returns = net.tensor(bins);
    const shares = softmax(net.run(layer, input));
    net.valueScale = shares.reduce((sum, share, k) => sum + share * Math.abs(returns[k]), 0);
    return Float32Array.of(shares.reduce((sum, share, k) => sum + share * returns[k], 0));
  },
  convolution: (net, part, input) => convolved(net, part, input),
  max_pool: (net, { size, stride, padding }, input) => {
    const fit = (length) => Math.floor((length + 2 * padding - size) / stride) + 1;
    const [height, width] = [fit(input.height), fit(input.width)];
    const data = new Float32Array(input.channels * height * width).fill(-Infinity);
    for (let k = 0; k < data.length; k++) {
      const [x, y, channel] = [k % width, Math.floor(k / width) % height, Math.floor(k / (width * height))];
      for (let inner = 0; inner < size * size; inner++) {
        const [row, column] = [y * stride - padding + Math.floor(inner / size), x * stride - padding + (inner % size)];
        if (row < 0 || column < 0 || row >= input.height || column >= input.width) continue;
        data[k] = Math.max(data[k], input.data[(channel * input.height + row) * input.width + column]);
      }
    }
    return planesOf(data, input.channels, height, width);
  },
  residual_block: (net, part, input) => {
    const added = net.run(part.second, each32(net.run(part.first, input), rectified));
    return { ...input, data: input.data.map((value, k) => rectified(value + added.data[k])) };
  },
  residual: (net, part, input) => {
    const added = net.run(part.second, each32(net.run(part.first, each32(input, rectified)), rectified));
    return { ...input, data: input.data.map((value, k) => value + added.data[k]) };
  },
};

/** Mean and maximum of each channel. */
function pooled(data, channels) {
  const cells = data.length / channels;
  const lanes = Array.from({ length: channels }, (_, k) => data.subarray(k * cells, (k + 1) * cells));
  const means = lanes.map((lane) => lane.reduce((a, b) => a + b, 0) / cells);
  return Float32Array.from([...means, ...lanes.map((lane) => Math.max(...lane))]);
}
