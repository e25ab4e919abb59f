/** The metrics of one run in the page: columns that grow as records come, of bounded length. */

const MOST_ROWS = 2400;
const GROWING = new Set(["step", "update", "time.elapsed_seconds"]);

export class RunData {
  constructor() {
    this.columns = {};
    this.rows = 0;
    this.lastStep = -Infinity;
  }

  /** Take the server's columns in place of all there is. */
  load(columns) {
    this.columns = columns;
    this.rows = columns.step?.length ?? 0;
    this.lastStep = this.rows ? columns.step[this.rows - 1] : -Infinity;
  }

  /** Add a record of metrics.jsonl; one that is known already is passed over. Returns whether it was new. */
  append(record) {
    if (record.step <= this.lastStep) return false;
    this.lastStep = record.step;
    if (this.rows >= MOST_ROWS) this.halve();
    for (const [name, value] of Object.entries(record)) {
      if (value !== null && typeof value === "object") {
        for (const [inner, item] of Object.entries(value)) this.put(`${name}.${inner}`, item);
      } else this.put(name, value);
    }
    this.rows += 1;
    for (const column of Object.values(this.columns)) if (column.length < this.rows) column.push(null);
    return true;
  }

  put(name, value) {
    if (typeof value !== "number") return;
    const column = (this.columns[name] ??= new Array(this.rows).fill(null));
    column.push(value);
  }

  /** Merge neighbouring rows in pairs: the mean of numbers, the later one of those that grow. */
  halve() {
    for (const [name, column] of Object.entries(this.columns)) {
      this.columns[name] = Array.from({ length: Math.ceil(this.rows / 2) }, (_, place) => {
        const [first, second] = [column[2 * place], column[2 * place + 1] ?? null];
        if (first === null || second === null) return second ?? first;
        return GROWING.has(name) ? second : (first + second) / 2;
      });
    }
    this.rows = Math.ceil(this.rows / 2);
  }

  /**
   * The points of a metric where it has a number, over "step" or "time.elapsed_seconds". What an update gave was known
   * when it was done, and an evaluation, which its record waited for, at its end.
   */
  curve(name, over) {
    const [x, y] = [[], []];
    const [places, column] = [this.columns[over] ?? [], this.columns[name] ?? []];
    const waited = over === "step" || name.startsWith("eval/") ? [] : (this.columns["time.evaluate_seconds"] ?? []);
    for (let row = 0; row < this.rows; row += 1) {
      if (column[row] === null || column[row] === undefined || places[row] === null) continue;
      x.push(places[row] - (waited[row] ?? 0));
      y.push(column[row]);
    }
    return { x, y };
  }

  /** The newest number of a metric, null where there is none. */
  last(name) {
    const column = this.columns[name] ?? [];
    for (let row = column.length - 1; row >= 0; row -= 1) if (column[row] !== null) return column[row];
    return null;
  }

  /** Mean of a metric over the last `rows` rows. */
  mean(name, rows = this.rows) {
    const numbers = (this.columns[name] ?? []).slice(-rows).filter((value) => value !== null);
    return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : 0;
  }
}
