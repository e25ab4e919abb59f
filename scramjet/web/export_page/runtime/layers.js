/** The longer layers of networks: convolutions, planning by value propagation, recurrent cores. */

/** Planes with a border of zeros, one after the other. */
function withBorder(input, padding) {
  const [rows, columns] = [input.height + 2 * padding, input.width + 2 * padding];
  const data = new Float32Array(input.channels * rows * columns);
  for (let k = 0; k < input.channels * input.height; k++) {
    const [channel, row] = [Math.floor(k / input.height), k % input.height];
    const to = (channel * rows + row + padding) * columns + padding;
    data.set(input.data.subarray(k * input.width, (k + 1) * input.width), to);
  }
  return planesOf(data, input.channels, rows, columns);
}

/**
 * A square convolution of planes. Each weight is added along the whole picture in one loop, over the places at the ends
 * of rows too, where the kernel would reach into the next row: those sums are left out at the end.
 */
function convolved(net, { weight, bias, stride, padding }, input) {
  const [outputs, inputs, size] = weight.shape;
  const [kernel, start] = [net.tensor(weight), net.tensor(bias)];
  const { data: cells, height: rows, width: columns } = withBorder(input, padding);
  const [height, width] = [Math.floor((rows - size) / stride) + 1, Math.floor((columns - size) / stride) + 1];
  const span = (rows - size) * columns + columns - size + 1;
  const data = new Float32Array(outputs * height * width);
  const sums = new Float64Array(span);
  for (let output = 0, at = 0, to = 0; output < outputs; output++) {
    sums.fill(start[output]);
    for (let channel = 0; channel < inputs; channel++) {
      for (let inner = 0; inner < size * size; inner++, at++) {
        const factor = kernel[at];
        const from = (channel * rows + Math.floor(inner / size)) * columns + (inner % size);
        for (let k = 0; k < span; k++) sums[k] += factor * cells[from + k];
      }
    }
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) data[to++] = sums[(y * columns + x) * stride];
    }
  }
  return planesOf(data, outputs, height, width);
}

/** The features of scramjet/policies/encoders/value_propagation.py: values around the agent after planning. */
function plannedFeatures(net, part, obs) {
  const planes = gridPlanes(part.planes, obs);
  const { height, width } = planes;
  const cells = height * width;
  const maps = net.run(part.maps, each32(net.run(part.embed, planes), (x) => (x > 0 ? x : 0.2 * x)));
  const [reward, passes] = [0, 1].map((map) =>
    Float32Array.from({ length: cells }, (_, cell) => {
      const guess = part.guess[map].reduce((sum, factor, k) => sum + factor * planes.data[k * cells + cell], part.bias[map]);
      const input = Math.min(Math.max(10 * maps.data[map * cells + cell] + guess, -8), 8);
      return 1 / (1 + Math.exp(-input));
    }),
  );
  const value = propagated(reward, passes, height, width, part.maxSweeps);
  const [row, column] = [obs.agent[0] - part.start[0], obs.agent[1] - part.start[1]];
  const around = (map) =>
    $.range(9).map((k) => {
      const [y, x] = [row - 1 + Math.floor(k / 3), column - 1 + (k % 3)];
      return y < 0 || x < 0 || y >= height || x >= width ? 0 : map[y * width + x];
    });
  const [values, passable] = [around(value), around(passes)];
  const logs = values.map((one) => Math.log(one + 1e-6));
  const logPass = Math.log(passable[4] + 1e-6);
  const steps = logs.map((log) => Math.tanh((log - logs[4]) / (0.01 - logPass)));
  const distance = logs[4] / (logPass - 0.01) / (height + width);
  return withRest(net, Float32Array.from([...steps, ...passable, values[4], distance]), part.planes.rest, obs);
}

/** Sweep over the grid in changing directions until no value grows. */
function propagated(reward, passes, height, width, maxSweeps) {
  const value = Float32Array.from(reward);
  const at = (y, x) => (y < 0 || x < 0 || y >= height || x >= width ? -1e30 : value[y * width + x]);
  for (let sweep = 0, moved = true; sweep < maxSweeps && moved; sweep++) {
    moved = false;
    const [down, right] = [sweep % 2 === 0, sweep % 4 === 0 || sweep % 4 === 3];
    for (let k = 0; k < height * width; k++) {
      const [a, b] = [Math.floor(k / width), k % width];
      const [y, x] = [down ? a : height - 1 - a, right ? b : width - 1 - b];
      const cell = y * width + x;
      const best = Math.max(at(y, x - 1), at(y, x + 1), at(y - 1, x), at(y + 1, x));
      const offered = Math.fround(passes[cell] * best + (1 - passes[cell]) * reward[cell]);
      if (offered > value[cell]) {
        value[cell] = offered;
        moved = true;
      }
    }
  }
  return value;
}

const sigmoid = (value) => 1 / (1 + Math.exp(-value));

/** A row of numbers times a matrix that has a row for each. */
function rowTimes(net, input, weight) {
  const [matrix, columns] = [net.tensor(weight), weight.shape[1]];
  const sums = new Float64Array(columns);
  input.forEach((factor, row) => {
    if (factor === 0) return;
    for (let k = 0, at = row * columns; k < columns; k++, at++) sums[k] += factor * matrix[at];
  });
  return sums;
}

/** One step of a recurrent layer: its outputs and its state after them (see scramjet/policies/recurrent.py). */
const CORES = {
  lstm: (net, layer, features, before) => {
    const size = before.length / 2;
    const [bias, own] = [net.tensor(layer.bias), rowTimes(net, features, layer.input_weight)];
    const recalled = rowTimes(net, before.subarray(0, size), layer.recurrent_weight);
    const state = new Float32Array(2 * size);
    for (let k = 0; k < size; k++) {
      const gate = (block) => own[block * size + k] + bias[block * size + k] + recalled[block * size + k];
      state[size + k] = sigmoid(gate(1)) * before[size + k] + sigmoid(gate(0)) * Math.tanh(gate(2));
      state[k] = sigmoid(gate(3)) * Math.tanh(state[size + k]);
    }
    return { features: state.slice(0, size), state };
  },
  gru: (net, layer, features, before) => {
    const size = before.length;
    const [bias, own] = [net.tensor(layer.bias), rowTimes(net, features, layer.input_weight)];
    const recalled = rowTimes(net, before, layer.recurrent_weight);
    const state = before.map((kept, k) => {
      const reset = sigmoid(own[k] + bias[size + k] + recalled[size + k]);
      const keep = sigmoid(own[size + k] + bias[2 * size + k] + recalled[2 * size + k]);
      const candidate = Math.tanh(own[2 * size + k] + bias[3 * size + k] + reset * (recalled[k] + bias[k]));
      return (1 - keep) * candidate + keep * kept;
    });
    return { features: state, state };
  },
  mingru: (net, layer, features, before) => {
    const size = before.length;
    const [bias, own] = [net.tensor(layer.bias), rowTimes(net, features, layer.input_weight)];
    const state = before.map((kept, k) => {
      const share = sigmoid(own[k] + bias[k]);
      return (1 - share) * kept + share * (own[size + k] + bias[size + k]);
    });
    return { features: state, state };
  },
};
