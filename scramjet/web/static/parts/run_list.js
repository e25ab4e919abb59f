/** Searching, sorting and grouping the lines of the list of runs. Pure functions over the server's rows. */

const KEYS = {
  run: (row) => row.name,
  name: (row) => row.name,
  state: (row) => row.state,
  env: (row) => row.env,
  algorithm: (row) => row.algorithm,
  seed: (row) => row.seed,
  device: (row) => row.device,
  tag: (row) => (row.tags ?? []).join(" "),
  tags: (row) => (row.tags ?? []).join(" "),
  fork: (row) => row.parent,
};

/** What a column is sorted by. */
export const ORDERS = {
  name: (row) => row.name,
  state: (row) => ["running", "pending", "killed", "stopped", "finished", "damaged"].indexOf(row.state),
  env: (row) => row.env,
  algorithm: (row) => row.algorithm,
  seed: (row) => row.seed,
  step: (row) => row.step,
  value: (row) => row.value,
  steps_per_second: (row) => row.steps_per_second,
  seconds_left: (row) => row.seconds_left ?? (row.elapsed ? 1e9 + row.elapsed : null),
  started: (row) => row.started,
  tags: (row) => (row.tags ?? []).join(" "),
};

/** Whether every word of a search is in a row; `env:cartpole` looks at one column alone. */
export function matches(row, search) {
  return search.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const [, key, text] = word.match(/^([a-z]+):(.*)$/) ?? [];
    if (key in KEYS) return String(KEYS[key](row) ?? "").toLowerCase().includes(text);
    const whole = [row.name, row.state, row.env, row.algorithm, `seed ${row.seed}`, row.device, row.parent, row.tags?.join(" ")];
    return whole.join("\n").toLowerCase().includes(word);
  });
}

/** The rows in the order of a column; rows without a value come last either way, equal ones by name. */
export function sorted(rows, column, isDescending) {
  const order = ORDERS[column] ?? ORDERS.started;
  const known = rows.map((row) => [order(row) ?? null, row]);
  known.sort(([a, first], [b, second]) => {
    if (a === null || b === null) return a === b ? byName(first, second) : a === null ? 1 : -1;
    const way = typeof a === "number" && typeof b === "number" ? a - b : byText(String(a), String(b));
    return way === 0 ? byName(first, second) : isDescending ? -way : way;
  });
  return known.map(([, row]) => row);
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const byText = (a, b) => collator.compare(a, b);
const byName = (a, b) => byText(a.name, b.name);

/**
 * Put runs that differ in nothing but the seed into one line: {row, members}, at the place of the first of them.
 * A run on its own has no members. The line's numbers are means; `low` and `high` say the range of its value.
 */
export function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = row.group?.trim() ? row.group : `alone ${row.name}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].map((members) =>
    members.length === 1 ? { row: members[0], members: [] } : { row: summary(members), members: [...members].sort(byName) });
}

function summary(members) {
  const first = [...members].sort(byName)[0];
  const values = members.map((row) => row.value).filter((value) => typeof value === "number");
  return {
    ...first,
    key: `group ${first.group}`,
    seeds: members.length,
    states: members.map((row) => row.state),
    state: members.some((row) => row.state === "running") ? "running" : first.state,
    tags: [...new Set(members.flatMap((row) => row.tags ?? []))],
    step: mean(members, "step"),
    value: mean(members, "value"),
    low: values.length ? Math.min(...values) : null,
    high: values.length ? Math.max(...values) : null,
    steps_per_second: mean(members, "steps_per_second"),
    seconds_left: Math.max(...members.map((row) => row.seconds_left ?? -1)) >= 0
      ? Math.max(...members.map((row) => row.seconds_left ?? 0)) : null,
    started: Math.min(...members.map((row) => row.started ?? Infinity)),
  };
}

function mean(rows, name) {
  const numbers = rows.map((row) => row[name]).filter((value) => typeof value === "number");
  return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
}
