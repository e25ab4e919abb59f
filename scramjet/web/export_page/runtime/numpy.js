/** The functions of NumPy that pictures of worlds use. */

/** Shape of nested sequences. */
function shapeOf(value) {
  if (value instanceof NdArray) return value.shape;
  return Array.isArray(value) ? [value.length, ...(value.length > 0 ? shapeOf(value[0]) : [])] : [];
}

function flattened(value) {
  if (value instanceof NdArray) return value.values();
  return Array.isArray(value) ? value.flatMap(flattened) : [value];
}

const each = (operation) => (value) =>
  typeof value === "number" || typeof value === "boolean" ? operation($.pos(value)) : $.np.array(value).map(operation);

const pair = (operation) => (a, b) =>
  typeof a === "number" && typeof b === "number" ? operation(a, b) : elementwise(operation, a, b);

/** Bring an array down to one number, or along one axis. */
function reduced(value, operation, axis = null) {
  const array = $.np.array(value);
  if (axis === null) return operation(array.values());
  const along = axis < 0 ? axis + array.ndim : axis;
  const shape = array.shape.filter((_, k) => k !== along);
  const result = NdArray.zeros(shape);
  const others = NdArray.zeros(shape).places();
  const kept = new NdArray(array.data, shape, array.dtype, array.strides.filter((_, k) => k !== along), array.offset);
  kept.places().forEach((place, k) => {
    const lane = Array.from({ length: array.shape[along] }, (_, i) => $.pos(array.read(place + i * array.strides[along])));
    result.write(others[k], operation(lane));
  });
  return result;
}

const summed = (values) => values.reduce((a, b) => $.add(a, b), 0);
const spread = (values) => Math.max(...values) - Math.min(...values);
const axisOf = (given) => (typeof given === "object" && given !== null ? given.axis : given) ?? null;
const dtypeOf = (given) => (typeof given === "object" && given !== null ? given.dtype : given) ?? "float64";
const over = (operation) => (value, axis) => reduced(value, operation, axisOf(axis));

$.dtypes = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, kind]));

/** A number as a number type holds it, for `np.int8(x)` and so on. */
$.cast = (kind, value) => {
  if (value instanceof NdArray) return ofArrays.astype(value, kind);
  const one = NdArray.zeros([1], kind);
  one.write(0, number(value));
  return one.read(0);
};

$.np = {
  array: (value, dtype) => {
    if (value instanceof NdArray && dtype === undefined) return value;
    const shape = shapeOf(value);
    const result = NdArray.zeros(shape, dtype === undefined ? "float64" : dtypeOf(dtype));
    flattened(value).forEach((one, k) => result.write(k, one));
    return result;
  },
  zeros: (shape, dtype) => NdArray.zeros(shape, dtypeOf(dtype)),
  ones: (shape, dtype) => $.np.full(shape, 1, dtype),
  full: (shape, value, dtype) => {
    const result = NdArray.zeros(shape, dtypeOf(dtype));
    result.assign(value);
    return result;
  },
  arange: (...given) => $.np.array($.range(...given)),
  linspace: (start, stop, count = 50) =>
    $.np.array(Array.from({ length: count }, (_, k) => (k === count - 1 && k > 0 ? stop : start + k * ((stop - start) / (count - 1))))),
  argwhere: (value) => {
    const array = $.np.array(value);
    const steps = stridesOf(array.shape);
    const found = [];
    array.values().forEach((one, k) => {
      if ($.truth(one)) found.push(steps.map((step, axis) => Math.floor(k / step) % array.shape[axis]));
    });
    return found;
  },
  tile: (value, counts) => {
    const array = $.np.array(value);
    const times = $.list(counts);
    const shape = array.shape.flatMap((length, axis) => [times[axis], length]);
    const tiled = new NdArray(array.data, shape, array.dtype, array.strides.flatMap((step) => [0, step]), array.offset);
    return ofArrays.reshape(tiled, array.shape.map((length, axis) => length * times[axis]));
  },
  clip: (value, low, high) => each((one) => Math.min(Math.max(one, low), high))(value),
  where: (test, a, b) => {
    const chosen = elementwise((is, one) => (is ? one : NaN), test, a);
    return elementwise((one, other) => (Number.isNaN(one) ? other : one), chosen, b);
  },
  flip: (value, axis) => {
    const along = axisOf(axis);
    return value.part(value.shape.map((_, k) => new Slice(null, null, along === null || along === k || along + value.ndim === k ? -1 : 1)));
  },
  minimum: pair(Math.min), maximum: pair(Math.max), hypot: pair(Math.hypot), mod: (a, b) => $.mod(a, b),
  sin: each(Math.sin), cos: each(Math.cos), tan: each(Math.tan), sqrt: each(Math.sqrt), exp: each(Math.exp),
  log: each(Math.log), tanh: each(Math.tanh), floor: each(Math.floor), ceil: each(Math.ceil), abs: each(Math.abs),
  sign: each(Math.sign), round: each((value) => $.round(value)), arctan2: pair(Math.atan2),
  sum: over(summed), min: over((values) => Math.min(...values)), max: over((values) => Math.max(...values)),
  ptp: over(spread), mean: over((values) => summed(values) / values.length),
  any: (value) => $.np.array(value).values().some($.truth), all: (value) => $.np.array(value).values().every($.truth),
  argmax: (value) => flattened(value).reduce((best, one, k, all) => (one > all[best] ? k : best), 0),
  argmin: (value) => flattened(value).reduce((best, one, k, all) => (one < all[best] ? k : best), 0),
};

const ofArrays = {
  any: (array) => $.np.any(array), all: (array) => $.np.all(array),
  sum: (array, axis) => $.np.sum(array, axis), min: (array, axis) => $.np.min(array, axis),
  max: (array, axis) => $.np.max(array, axis), mean: (array, axis) => $.np.mean(array, axis),
  argmax: (array) => $.np.argmax(array), argmin: (array) => $.np.argmin(array),
  tolist: (array) => array.tolist(), item: (array) => array.single(),
  copy: (array) => ofArrays.astype(array, array.dtype),
  astype: (array, dtype) => {
    const result = NdArray.zeros(array.shape, dtypeOf(dtype));
    result.assign(array);
    return result;
  },
  fill: (array, value) => array.assign(value),
  ravel: (array) => ofArrays.reshape(array, -1),
  flatten: (array) => ofArrays.reshape(array, -1),
  reshape: (array, ...given) => {
    const shape = given.flat();
    const known = shape.filter((length) => length >= 0).reduce((a, b) => a * b, 1);
    const copy = ofArrays.copy(array);
    return new NdArray(copy.data, shape.map((length) => (length < 0 ? copy.size / known : length)), copy.dtype);
  },
};

/** The product of two matrices, or of a vector and a matrix or vector. */
$.matmul = (a, b) => {
  const [left, right] = [$.np.array(a), $.np.array(b)];
  if (left.ndim === 1) return right.ndim === 1 ? summed($.mul(left, right).values()) : $.matmul(left.get([null]), right).get([0]);
  if (right.ndim === 1) return $.np.array(Array.from(left, (row) => $.matmul(row, right)));
  return $.np.array(Array.from(left, (row) => Array.from(right.T, (column) => summed($.mul(row, column).values()))));
};
