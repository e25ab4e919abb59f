/** Keys that play: arrows for moves called up, right, down and left, digits for others; and a clock for worlds that
 * go on by themselves. */

const ARROWS = {
  ArrowUp: ["up", "north", "forward", "forwards"],
  ArrowRight: ["right", "east", "clockwise", "forwards", "forward"],
  ArrowDown: ["down", "south", "back", "backwards"],
  ArrowLeft: ["left", "west", "anticlockwise", "backwards", "back"],
};

const SIGNS = {
  ArrowLeft: { sign: "←", isUpright: false }, ArrowRight: { sign: "→", isUpright: false },
  ArrowUp: { sign: "↑", isUpright: true }, ArrowDown: { sign: "↓", isUpright: true },
};

/** The number of the move that a key means among these names; null where it means none. */
export function moveOfKey(key, names) {
  const lower = names.map((name) => name.toLowerCase());
  for (const name of ARROWS[key] ?? []) {
    if (lower.includes(name)) return lower.indexOf(name);
  }
  if (!/^[0-9]$/.test(key)) return null;
  if (lower.includes(key)) return lower.indexOf(key);
  if (names.length > 9 || lower.some((name) => /^[0-9]$/.test(name))) return null; // digits would be other moves' names
  const place = Number(key) - 1;
  return place >= 0 && place < names.length ? place : null;
}

/** The numbers that a held arrow means in a world of real numbers: an end of the first one, or of the second. */
export function numbersOfKey(key, bounds, values) {
  const isUpright = key === "ArrowUp" || key === "ArrowDown";
  if (!(key in ARROWS)) return null;
  const place = isUpright && bounds.length > 1 ? 1 : 0;
  const end = key === "ArrowRight" || key === "ArrowUp" ? 1 : 0;
  return values.map((value, each) => (each === place ? bounds[place][end] : value));
}

/** Whether the person is writing into something, or means the browser: such keys are not ours. */
export function isTyping(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  const target = event.target;
  if (target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement) return true;
  return target instanceof HTMLInputElement && target.type !== "checkbox";
}

/** Which keys play at a table of the server, in words. */
export function keysText(table) {
  const works = (key) => (table.bounds ? table.bounds.length > 1 || !SIGNS[key].isUpright : moveOfKey(key, table.moves) !== null);
  const arrows = Object.keys(SIGNS).filter(works).map((key) => SIGNS[key].sign);
  const digits = table.bounds ? [] : [..."0123456789"].filter((key) => moveOfKey(key, table.moves) !== null);
  const range = digits.length > 2 ? `${digits[0]} to ${digits.at(-1)}` : digits.join(" and ");
  const parts = [arrows.join(" "), range].filter(Boolean);
  const play = parts.length ? `Play with the keys ${parts.join(" or ")}. ` : "";
  return `${play}U undo, N new game${table.adviser || table.has_verdicts ? ", H hints" : ""}.`;
}

/** Calls `tick` so many times a second while it runs; `setSpeed` changes how many. */
export function makeClock(tick, speed) {
  let timer = null;
  const start = () => {
    timer = setInterval(() => document.hidden || tick(), 1000 / speed);
  };
  return {
    get isRunning() {
      return timer !== null;
    },
    start() {
      if (timer === null) start();
    },
    stop() {
      clearInterval(timer);
      timer = null;
    },
    setSpeed(value) {
      speed = value;
      if (timer === null) return;
      clearInterval(timer);
      start();
    },
  };
}
