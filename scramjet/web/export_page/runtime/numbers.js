/**
 * Python's arithmetic for translated rules, in `$`: whole numbers are exact up to 2**53 and an error beyond.
 *
 * Truth values count as 0 and 1, `//` and `%` round down, lists and tuples are JavaScript arrays. What is no pair of
 * plain numbers goes the slower way through `binary`.
 */
const $ = {};

class RuleError extends Error {}

const MOST = Number.MAX_SAFE_INTEGER;

/** A sum or product, unless whole numbers have left the range in which they are exact. */
function exact(value, a, b) {
  if ((value > MOST || value < -MOST) && Number.isSafeInteger(a) && Number.isSafeInteger(b)) {
    throw new RuleError(`${a} and ${b} make a whole number beyond 2**53`);
  }
  return value;
}

function isSequence(value) {
  return Array.isArray(value);
}

/** An operation on truth values, arrays or sequences; `sequences` is what it means for those, if anything. */
function binary(operation, a, b, sequences) {
  if (a instanceof NdArray || b instanceof NdArray) return elementwise(operation, a, b);
  if (typeof a === "boolean") a = Number(a);
  if (typeof b === "boolean") b = Number(b);
  if (typeof a === "number" && typeof b === "number") return operation(a, b);
  if (sequences !== undefined) return sequences(a, b);
  throw new RuleError(`numbers are needed, not ${$.str(a)} and ${$.str(b)}`);
}

function joined(a, b) {
  if (typeof a === "string" && typeof b === "string") return a + b;
  if (isSequence(a) && isSequence(b)) return a.concat(b);
  throw new RuleError(`cannot add ${$.str(a)} and ${$.str(b)}`);
}

function repeated(a, b) {
  const [sequence, count] = typeof a === "number" ? [b, a] : [a, b];
  if (typeof sequence === "string") return sequence.repeat(Math.max(count, 0));
  if (isSequence(sequence)) return Array.from({ length: Math.max(count, 0) }, () => sequence).flat(1);
  throw new RuleError(`cannot multiply ${$.str(a)} and ${$.str(b)}`);
}

$.add = (a, b) =>
  typeof a === "number" && typeof b === "number" ? exact(a + b, a, b) : binary($.add, a, b, joined);
$.sub = (a, b) => (typeof a === "number" && typeof b === "number" ? exact(a - b, a, b) : binary($.sub, a, b));
$.mul = (a, b) =>
  typeof a === "number" && typeof b === "number" ? exact(a * b, a, b) : binary($.mul, a, b, repeated);

$.div = (a, b) => {
  if (typeof a !== "number" || typeof b !== "number") return binary($.div, a, b);
  if (b === 0) throw new RuleError(`${a} / 0`);
  return a / b;
};

$.mod = (a, b) => {
  if (typeof a !== "number" || typeof b !== "number") return binary($.mod, a, b);
  if (b === 0) throw new RuleError(`${a} % 0`);
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest + 0;
};

$.floordiv = (a, b) => {
  if (typeof a !== "number" || typeof b !== "number") return binary($.floordiv, a, b);
  const quotient = (a - $.mod(a, b)) / b;
  const whole = Math.floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole + 0;
};

$.pow = (a, b) => {
  if (typeof a !== "number" || typeof b !== "number") return binary($.pow, a, b);
  if (b === 2) return exact(a * a, a, a);
  if (!Number.isInteger(a) || !Number.isInteger(b) || b < 0) return a ** b;
  let power = 1;
  for (let k = 0; k < b; k++) power = exact(power * a, power, a);
  return power;
};

/** A bit operation on whole numbers up to 2**53; two truth values give one. */
function bits(small, large, name) {
  return function operation(a, b) {
    if (typeof a === "boolean" && typeof b === "boolean") return small(a, b) !== 0;
    if (typeof a !== "number" || typeof b !== "number") return binary(operation, a, b);
    if ((a | 0) === a && (b | 0) === b) return small(a, b);
    if (!Number.isSafeInteger(a) || !Number.isSafeInteger(b)) throw new RuleError(`${a} ${name} ${b}`);
    return Number(large(BigInt(a), BigInt(b)));
  };
}

$.bitand = bits((a, b) => a & b, (a, b) => a & b, "&");
$.bitor = bits((a, b) => a | b, (a, b) => a | b, "|");
$.bitxor = bits((a, b) => a ^ b, (a, b) => a ^ b, "^");
$.shl = (a, b) => $.mul($.pos(a), $.pow(2, $.pos(b)));
$.shr = (a, b) => $.floordiv($.pos(a), $.pow(2, $.pos(b)));
$.pos = (a) => (typeof a === "boolean" ? Number(a) : a);
$.neg = (a) => (a instanceof NdArray ? elementwise($.sub, 0, a) : -$.pos(a));
$.invert = (a) => (a instanceof NdArray ? a.map($.invert) : -$.pos(a) - 1);

$.eq = (a, b) => {
  if (typeof a === typeof b && typeof a !== "object") return a === b;
  if (a === null || b === null) return a === b;
  if (a instanceof NdArray || b instanceof NdArray) return elementwise($.eq, a, b, "bool");
  if (isSequence(a) && isSequence(b)) return a.length === b.length && a.every((one, k) => $.eq(one, b[k]));
  return $.pos(a) === $.pos(b);
};
$.ne = (a, b) => (a instanceof NdArray || b instanceof NdArray ? elementwise($.ne, a, b, "bool") : !$.eq(a, b));

/** An order of numbers, texts and, entry by entry, sequences. */
function ordered(order) {
  return function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return order(a, b);
    if (a instanceof NdArray || b instanceof NdArray) return elementwise(compare, a, b, "bool");
    if (!isSequence(a) || !isSequence(b)) return order($.pos(a), $.pos(b));
    const first = a.findIndex((one, k) => k >= b.length || !$.eq(one, b[k]));
    return first >= 0 && first < b.length ? compare(a[first], b[first]) : order(a.length, b.length);
  };
}

$.lt = ordered((a, b) => a < b);
$.le = ordered((a, b) => a <= b);
$.gt = ordered((a, b) => a > b);
$.ge = ordered((a, b) => a >= b);

$.truth = (value) => {
  if (typeof value === "boolean") return value;
  if (typeof value === "number") return value !== 0;
  if (value === null) return false;
  if (value instanceof NdArray) return $.truth(value.single());
  if (value instanceof Dict) return value.size > 0;
  return value.length === undefined || value.length > 0;
};
$.and = (a, rest) => ($.truth(a) ? rest() : a);
$.or = (a, rest) => ($.truth(a) ? a : rest());

$.int = (value) => (typeof value === "string" ? Number.parseInt(value, 10) : Math.trunc(number(value)) + 0);
$.float = (value) => (typeof value === "string" ? Number.parseFloat(value) : number(value));
$.bool = (value) => $.truth(value);
$.abs = (value) => (value instanceof NdArray ? value.map(Math.abs) : Math.abs(value));

function number(value) {
  return value instanceof NdArray ? $.pos(value.single()) : $.pos(value);
}

/** Round half to even. */
$.round = (value, digits = null) => {
  if (digits !== null && digits !== 0) return Number(value.toFixed(digits));
  const down = Math.floor(value);
  const rest = value - down;
  if (rest !== 0.5) return rest < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
};

/** The extreme of several values, or of one sequence; of equal ones the first. */
function extreme(isBetter) {
  return (...values) => {
    const all = values.length === 1 ? $.list(values[0]) : values;
    if (all.length === 0) throw new RuleError("the minimum or maximum of nothing");
    let best = all[0];
    for (let k = 1; k < all.length; k++) if (isBetter(all[k], best)) best = all[k];
    return best;
  };
}

const lowest = extreme((a, b) => $.lt(a, b));
const highest = extreme((a, b) => $.gt(a, b));
$.min = (a, b) => (typeof a === "number" && typeof b === "number" ? (b < a ? b : a) : b === undefined ? lowest(a) : lowest(a, b));
$.max = (a, b) => (typeof a === "number" && typeof b === "number" ? (b > a ? b : a) : b === undefined ? highest(a) : highest(a, b));
$.lowest = lowest;
$.highest = highest;
$.divmod = (a, b) => [$.floordiv(a, b), $.mod(a, b)];
$.fail = (text) => {
  throw new RuleError(text);
};

$.math = {
  sin: Math.sin, cos: Math.cos, tan: Math.tan, asin: Math.asin, acos: Math.acos, atan: Math.atan, atan2: Math.atan2,
  sinh: Math.sinh, cosh: Math.cosh, tanh: Math.tanh, exp: Math.exp, log2: Math.log2, log10: Math.log10,
  log1p: Math.log1p, expm1: Math.expm1, hypot: Math.hypot, pow: (a, b) => a ** b, fabs: Math.abs,
  log: (value, base) => {
    if (value <= 0) throw new RuleError(`the logarithm of ${value}`);
    return base === undefined ? Math.log(value) : Math.log(value) / Math.log(base);
  },
  sqrt: (value) => {
    if (value < 0) throw new RuleError(`the square root of ${value}`);
    return Math.sqrt(value);
  },
  floor: (value) => Math.floor(number(value)) + 0,
  ceil: (value) => Math.ceil(number(value)) + 0,
  trunc: (value) => Math.trunc(number(value)) + 0,
  degrees: (value) => value * (180 / Math.PI),
  radians: (value) => value * (Math.PI / 180),
  isnan: Number.isNaN,
  isfinite: Number.isFinite,
  isinf: (value) => value === Infinity || value === -Infinity,
  copysign: (a, b) => (b < 0 || Object.is(b, -0) ? -Math.abs(a) : Math.abs(a)),
  fmod: (a, b) => a % b,
};
