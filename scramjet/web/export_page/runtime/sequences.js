/** Python's lists, dictionaries, loops and texts for translated rules and pictures. */

/** A dictionary; tuples are keys by their entries. */
class Dict {
  constructor(pairs) {
    this.entries = new Map(pairs.map(([key, value]) => [Dict.word(key), [key, value]]));
  }

  static word(key) {
    return Array.isArray(key) ? JSON.stringify(key) : $.pos(key);
  }

  get size() {
    return this.entries.size;
  }

  has(key) {
    return this.entries.has(Dict.word(key));
  }

  at(key) {
    if (!this.has(key)) throw new RuleError(`no key ${$.str(key)}`);
    return this.entries.get(Dict.word(key))[1];
  }

  put(key, value) {
    this.entries.set(Dict.word(key), [key, value]);
  }

  get(key, otherwise = null) {
    return this.has(key) ? this.at(key) : otherwise;
  }

  items() {
    return [...this.entries.values()];
  }

  keys() {
    return this.items().map(([key]) => key);
  }

  values() {
    return this.items().map(([, value]) => value);
  }
}

$.dict = (pairs = []) => new Dict(pairs);
$.iter = (value) => (value instanceof Dict ? value.keys() : value);
$.list = (value = []) => [...$.iter(value)];
$.range = (start, stop, step = 1) => {
  const slice = stop === undefined ? [0, start] : [start, stop];
  return Array.from({ length: Math.max(0, Math.ceil((slice[1] - slice[0]) / step)) }, (_, k) => slice[0] + k * step);
};
$.len = (value) => (value instanceof NdArray ? value.shape[0] : value instanceof Dict ? value.size : value.length);
$.enumerate = (value, start = 0) => $.list(value).map((one, k) => [start + k, one]);
$.zip = (...many) => {
  const lists = many.map($.list);
  return Array.from({ length: Math.min(...lists.map((one) => one.length)) }, (_, k) => lists.map((one) => one[k]));
};
$.pairwise = (value) => $.list(value).slice(1).map((one, k, rest) => [k === 0 ? $.list(value)[0] : rest[k - 1], one]);
$.reversed = (value) => $.list(value).reverse();
$.sum = (value, start = 0) => $.list(value).reduce((a, b) => $.add(a, b), start);
$.any = (value) => $.list(value).some($.truth);
$.all = (value) => $.list(value).every($.truth);
$.map = (operation, ...many) => $.zip(...many).map((each) => operation(...each));
$.next = (value, otherwise) => {
  const first = $.list(value);
  if (first.length === 0 && otherwise === undefined) throw new RuleError("nothing comes next");
  return first.length > 0 ? first[0] : otherwise;
};
$.sorted = (value, { key = (one) => one, reverse = false } = {}) => {
  const keyed = $.list(value).map((one) => [key(one), one]);
  const sign = $.truth(reverse) ? -1 : 1;
  return keyed.sort((a, b) => sign * ($.lt(a[0], b[0]) ? -1 : $.lt(b[0], a[0]) ? 1 : 0)).map((pair) => pair[1]);
};
$.contains = (container, value) => {
  if (container instanceof Dict) return container.has(value);
  if (typeof container === "string") return container.includes(value);
  return $.list(container instanceof NdArray ? container.values() : container).some((one) => $.eq(one, value));
};
$.unpack = (value, count) => {
  const parts = $.list(value);
  if (parts.length !== count) throw new RuleError(`${parts.length} values for ${count} names`);
  return parts;
};
$.unpackAround = (value, before, after) => {
  const parts = $.list(value);
  if (parts.length < before + after) throw new RuleError(`${parts.length} values for more names`);
  const end = parts.length - after;
  return [...parts.slice(0, before), parts.slice(before, end), ...parts.slice(end)];
};

$.str = (value) => {
  if (typeof value === "string") return value;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value instanceof NdArray) return `[${value.values().map($.str).join(" ")}]`;
  if (Array.isArray(value)) return `[${value.map($.str).join(", ")}]`;
  return String(value);
};

/** A value by a format such as `>2`, `+.2f`, `7d` or `.1%`. */
$.format = (value, spec) => {
  const found = /^(?:(.)?([<>^]))?([+ ])?(0)?(\d+)?(,)?(?:\.(\d+))?([dfeg%s])?$/u.exec(spec);
  if (found === null) throw new RuleError(`the format ${spec} is not known here`);
  const [, fill, align, sign, zero, width, comma, digits, type] = found;
  const isNumber = typeof value !== "string";
  let text = isNumber ? shownNumber($.pos(value), type, digits, comma) : value.slice(0, digits);
  if (isNumber && sign !== undefined && !text.startsWith("-")) text = sign + text;
  const missing = Math.max(0, Number(width ?? 0) - text.length);
  if (zero !== undefined && align === undefined && isNumber) {
    const [head, body] = /^[+-]/.test(text) ? [text[0], text.slice(1)] : ["", text];
    return head + "0".repeat(missing) + body;
  }
  const side = align ?? (isNumber ? ">" : "<");
  const left = side === ">" ? missing : side === "^" ? Math.floor(missing / 2) : 0;
  return (fill ?? " ").repeat(left) + text + (fill ?? " ").repeat(missing - left);
};

function shownNumber(value, type, digits, comma) {
  if (value === null || typeof value !== "number") return $.str(value);
  const places = Number(digits ?? 6);
  if (type === "%") return `${(100 * value).toFixed(places)}%`;
  if (type === "e") return value.toExponential(places).replace(/e([+-])(\d)$/, "e$10$2");
  if (type === "g") return String(Number(value.toPrecision(Math.max(1, places))));
  if (type !== "f") return comma ? grouped(String(value)) : $.str(value);
  return comma ? grouped(value.toFixed(places)) : value.toFixed(places);
}

function grouped(text) {
  const [whole, rest] = text.split(".");
  const marked = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? marked : `${marked}.${rest}`;
}

const ofLists = {
  append: (list, value) => void list.push(value),
  extend: (list, values) => void list.push(...$.list(values)),
  insert: (list, place, value) => void list.splice(place, 0, value),
  pop: (list, place = -1) => list.splice(place, 1)[0],
  remove: (list, value) => void list.splice(list.findIndex((one) => $.eq(one, value)), 1),
  index: (list, value) => list.findIndex((one) => $.eq(one, value)),
  count: (list, value) => list.filter((one) => $.eq(one, value)).length,
  copy: (list) => [...list],
  reverse: (list) => void list.reverse(),
  sort: (list, options) => void list.splice(0, list.length, ...$.sorted(list, options)),
};

const ofTexts = {
  join: (text, parts) => $.list(parts).join(text),
  rstrip: (text, marks) => (marks === undefined ? text.trimEnd() : stripped(text, marks, false, true)),
  lstrip: (text, marks) => (marks === undefined ? text.trimStart() : stripped(text, marks, true, false)),
  strip: (text, marks) => (marks === undefined ? text.trim() : stripped(text, marks, true, true)),
  ljust: (text, width, fill = " ") => text.padEnd(width, fill),
  rjust: (text, width, fill = " ") => text.padStart(width, fill),
  zfill: (text, width) => text.padStart(width, "0"),
  center: (text, width) => {
    const missing = Math.max(0, width - text.length);
    const left = Math.floor(missing / 2) + (missing & width & 1);
    return " ".repeat(left) + text + " ".repeat(missing - left);
  },
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  title: (text) => text.replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1).toLowerCase()),
  replace: (text, old, fresh) => text.replaceAll(old, fresh),
  split: (text, mark) => (mark === undefined ? text.trim().split(/\s+/) : text.split(mark)),
  splitlines: (text) => text.split("\n"),
  startswith: (text, start) => text.startsWith(start),
  endswith: (text, end) => text.endsWith(end),
  index: (text, part) => text.indexOf(part),
  find: (text, part) => text.indexOf(part),
  count: (text, part) => text.split(part).length - 1,
};

function stripped(text, marks, atStart, atEnd) {
  let [start, end] = [0, text.length];
  while (atStart && start < end && marks.includes(text[start])) start++;
  while (atEnd && end > start && marks.includes(text[end - 1])) end--;
  return text.slice(start, end);
}

/** Call the method of a value: `names` are the arguments given by name. */
$.call = (value, method, given, names) => {
  const more = names === undefined ? given : [...given, names];
  const table = typeof value === "string" ? ofTexts : Array.isArray(value) ? ofLists : value instanceof NdArray ? ofArrays : null;
  if (table !== null && Object.hasOwn(table, method)) return table[method](value, ...more) ?? null;
  const isOwn = value instanceof Dict || value instanceof Canvas;
  if (isOwn && typeof value[method] === "function") return value[method](...more) ?? null;
  throw new RuleError(`the method ${method} is not known here`);
};
