/**
 * Arrays like NumPy's over typed arrays, as far as rules and pictures of worlds use them: views by whole numbers and
 * slices, arithmetic entry by entry with broadcasting.
 */
const KINDS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array,
  uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, float32: Float32Array, float64: Float64Array,
};

class Slice {
  constructor(start, stop, step) {
    this.start = start;
    this.stop = stop;
    this.step = step === null ? 1 : step;
  }

  /** The first index, the step and how many there are, in a sequence of `length`. */
  resolve(length) {
    const { step } = this;
    const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
    const fit = (value, otherwise) => {
      if (value === null) return otherwise;
      return Math.min(Math.max(value < 0 ? value + length : value, low), high);
    };
    const start = fit(this.start, step > 0 ? low : high);
    const stop = fit(this.stop, step > 0 ? high : low);
    return { start, step, count: Math.max(0, Math.ceil((stop - start) / step)) };
  }
}

const ELLIPSIS = Symbol("...");

function stridesOf(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

class NdArray {
  constructor(data, shape, dtype, strides = stridesOf(shape), offset = 0) {
    this.data = data;
    this.shape = shape;
    this.dtype = dtype;
    this.strides = strides;
    this.offset = offset;
    this.isBool = dtype === "bool";
    this.isWide = dtype === "int64" || dtype === "uint64";
  }

  static zeros(shape, dtype = "float64") {
    const sizes = typeof shape === "number" ? [shape] : $.list(shape);
    return new NdArray(new KINDS[dtype](sizes.reduce((a, b) => a * b, 1)), sizes, dtype);
  }

  get size() {
    return this.shape.reduce((a, b) => a * b, 1);
  }

  get ndim() {
    return this.shape.length;
  }

  get T() {
    return new NdArray(this.data, [...this.shape].reverse(), this.dtype, [...this.strides].reverse(), this.offset);
  }

  read(place) {
    const value = this.data[place];
    if (this.isBool) return value !== 0;
    return this.isWide ? Number(value) : value;
  }

  write(place, value) {
    if (this.isBool) this.data[place] = $.truth(value) ? 1 : 0;
    else if (this.isWide) this.data[place] = BigInt(Math.trunc(Number(value)));
    else this.data[place] = value;
  }

  /** How far along an axis an index leads; an error outside. */
  step(axis, index) {
    const length = this.shape[axis];
    const place = index < 0 ? index + length : Number(index);
    if (!(place >= 0 && place < length)) throw new RuleError(`index ${index} of an axis of ${length}`);
    return place * this.strides[axis];
  }

  /** The part that whole numbers, slices, `None` and `...` select. */
  part(indices) {
    const given = indices.filter((one) => one !== null && one !== ELLIPSIS).length;
    const shape = [];
    const strides = [];
    let offset = this.offset;
    let axis = 0;
    const keep = (count) => {
      for (let k = 0; k < count; k++, axis++) {
        shape.push(this.shape[axis]);
        strides.push(this.strides[axis]);
      }
    };
    for (const index of indices) {
      if (index === ELLIPSIS) keep(this.shape.length - given);
      else if (index === null) {
        shape.push(1);
        strides.push(0);
      } else if (index instanceof Slice) {
        const { start, step, count } = index.resolve(this.shape[axis]);
        offset += start * this.strides[axis];
        shape.push(count);
        strides.push(step * this.strides[axis++]);
      } else if (typeof index === "number" || typeof index === "boolean") {
        offset += this.step(axis++, index);
      } else throw new RuleError("arrays are indexed by whole numbers and slices here");
    }
    keep(this.shape.length - axis);
    return new NdArray(this.data, shape, this.dtype, strides, offset);
  }

  get(indices) {
    const part = this.part(indices);
    return part.shape.length === 0 ? part.read(part.offset) : part;
  }

  set(indices, value) {
    const part = this.part(indices);
    if (part.shape.length === 0) part.write(part.offset, value instanceof NdArray ? value.single() : value);
    else part.assign(value);
  }

  /** Every place of this array in the data, in order. */
  places() {
    let places = Int32Array.of(this.offset);
    for (let axis = 0; axis < this.shape.length; axis++) {
      const [length, stride] = [this.shape[axis], this.strides[axis]];
      const finer = new Int32Array(places.length * length);
      for (let outer = 0, k = 0; outer < places.length; outer++) {
        for (let inner = 0, place = places[outer]; inner < length; inner++, place += stride) finer[k++] = place;
      }
      places = finer;
    }
    return places;
  }

  /** Write a number, or an array or nested sequence stretched to this shape. */
  assign(value) {
    const places = this.places();
    if (typeof value !== "object") {
      for (const place of places) this.write(place, value);
      return;
    }
    const source = $.np.array(value).stretched(this.shape);
    const from = source.places();
    if (this.isBool || this.isWide || source.isWide) {
      for (let k = 0; k < places.length; k++) this.write(places[k], source.read(from[k]));
      return;
    }
    const [to, given] = [this.data, source.data];
    for (let k = 0; k < places.length; k++) to[places[k]] = given[from[k]];
  }

  /** This array as if it had another shape, repeating axes of length 1. */
  stretched(shape) {
    const strides = shape.map((length, axis) => {
      const own = axis - (shape.length - this.shape.length);
      if (own < 0 || (this.shape[own] === 1 && length !== 1)) return 0;
      if (this.shape[own] !== length) throw new RuleError(`shapes [${this.shape}] and [${shape}] do not fit`);
      return this.strides[own];
    });
    return new NdArray(this.data, shape, this.dtype, strides, this.offset);
  }

  map(operation, dtype = "float64") {
    const result = NdArray.zeros(this.shape, dtype);
    const [data, places] = [this.numbers(), this.places()];
    for (let k = 0; k < places.length; k++) result.data[k] = operation(data[places[k]]);
    return result;
  }

  /** The data as something that gives plain numbers. */
  numbers() {
    return this.isWide ? Array.from(this.data, Number) : this.data;
  }

  values() {
    return Array.from(this.places(), (place) => this.read(place));
  }

  single() {
    if (this.size !== 1) throw new RuleError("an array of several numbers is no number");
    return this.read(this.places()[0]);
  }

  *[Symbol.iterator]() {
    for (let k = 0; k < this.shape[0]; k++) yield this.get([k]);
  }

  tolist() {
    return Array.from(this, (one) => (one instanceof NdArray ? one.tolist() : one));
  }
}

/** `operation` on each pair of entries of two arrays, numbers or sequences, brought to one shape. */
function elementwise(operation, a, b, dtype = "float64") {
  const [first, second] = [$.np.array(a), $.np.array(b)];
  const rank = Math.max(first.ndim, second.ndim);
  const shape = Array.from({ length: rank }, (_, axis) => {
    const lengths = [first, second].map((one) => one.shape[axis - rank + one.ndim] ?? 1);
    return lengths[0] === 1 ? lengths[1] : lengths[0];
  });
  const [left, right] = [first.stretched(shape), second.stretched(shape)];
  const [from, other] = [left.places(), right.places()];
  const result = NdArray.zeros(shape, dtype);
  const [leftData, rightData] = [left.numbers(), right.numbers()];
  const loop = LOOPS.get(operation) ?? makeLoop(operation);
  loop(result.data, leftData, from, rightData, other);
  return result;
}

/** A loop of its own for an operation: engines make it fast where one loop for all of them would be ten times slower. */
const LOOPS = new Map();
function makeLoop(operation) {
  const plain = {
    add: (to, a, i, b, j) => { for (let k = 0; k < i.length; k++) to[k] = a[i[k]] + b[j[k]]; },
    sub: (to, a, i, b, j) => { for (let k = 0; k < i.length; k++) to[k] = a[i[k]] - b[j[k]]; },
    mul: (to, a, i, b, j) => { for (let k = 0; k < i.length; k++) to[k] = a[i[k]] * b[j[k]]; },
    any: (to, a, i, b, j) => { for (let k = 0; k < i.length; k++) to[k] = operation(a[i[k]], b[j[k]]); },
  };
  const name = ["add", "sub", "mul"].find((one) => $[one] === operation) ?? "any";
  LOOPS.set(operation, plain[name]);
  return plain[name];
}

$.slice = (start, stop, step) => new Slice(start, stop, step);
$.ellipsis = ELLIPSIS;

/** The entry of a list, tuple, text or dictionary, or what a slice of it holds. */
function entry(sequence, index) {
  if (sequence instanceof Dict) return sequence.at(index);
  if (index instanceof Slice) {
    const { start, step, count } = index.resolve(sequence.length);
    const chosen = Array.from({ length: count }, (_, k) => sequence[start + k * step]);
    return typeof sequence === "string" ? chosen.join("") : chosen;
  }
  const place = index < 0 ? index + sequence.length : Number(index);
  if (!(place >= 0 && place < sequence.length)) throw new RuleError(`index ${index} of ${sequence.length} entries`);
  return sequence[place];
}

$.get = (value, index) => {
  if (!(value instanceof NdArray)) return entry(value, index);
  if (value.shape.length === 1 && typeof index === "number") return value.read(value.offset + value.step(0, index));
  return value.get([index]);
};
$.get2 = (value, i, j) => {
  if (value instanceof NdArray && value.shape.length === 2 && typeof i === "number" && typeof j === "number") {
    return value.read(value.offset + value.step(0, i) + value.step(1, j));
  }
  return value.get([i, j]);
};
$.getn = (value, indices) => value.get(indices);
$.set = (value, index, given) => {
  if (value instanceof NdArray) value.set([index], given);
  else if (value instanceof Dict) value.put(index, given);
  else {
    entry(value, index);
    value[index < 0 ? index + value.length : index] = given;
  }
};
$.set2 = (value, i, j, given) => value.set([i, j], given);
$.setn = (value, indices, given) => value.set(indices, given);

/** What `name op= value` leaves in a name: an array is changed in place, all else is replaced. */
$.into = (before, after) => {
  if (!(before instanceof NdArray)) return after;
  before.assign(after);
  return before;
};
