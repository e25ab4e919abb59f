/** Numbers and times as people read them. Every function answers "–" for what is not known. */

const NONE = "–";

/** 1234.5 as "1,234.5", 0.000123 as "1.23e-4": four figures at most. */
export function number(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4 });
}

/** 1234567 as "1,234,567". */
export function whole(value) {
  return typeof value === "number" && Number.isFinite(value) ? Math.round(value).toLocaleString("en") : NONE;
}

/** 1234567 as "1.23M". */
export function count(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return NONE;
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${letter}`;
  }
  return String(Number(value.toPrecision(3)));
}

/** 0.125 as "13 %". */
export function percent(share) {
  return typeof share === "number" && Number.isFinite(share) ? `${Math.round(share * 100)} %` : NONE;
}

/** 1536 as "1.5 KB". */
export function bytes(value) {
  if (typeof value !== "number") return NONE;
  for (const [size, unit] of [[2 ** 40, "TB"], [2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]]) {
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

/** 3725 seconds as "1 h 2 m". */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600), Math.floor((whole % 3600) / 60)];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} m`;
  if (minutes > 0) return `${minutes} m ${whole % 60} s`;
  return `${whole} s`;
}

/** The same to a tenth of a second below an hour, for times that are compared: "4.2 s", "1 m 15.0 s". */
export function durationInTenths(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds) || seconds >= 3599.95) return duration(seconds);
  const tenths = Math.max(0, Math.round(seconds * 10));
  const rest = `${((tenths % 600) / 10).toFixed(1)} s`;
  return tenths < 600 ? rest : `${Math.floor(tenths / 600)} m ${rest}`;
}

/** How long ago a time (seconds since 1970) was: "3 m ago". */
export function ago(time) {
  if (typeof time !== "number") return NONE;
  const seconds = Math.max(0, Date.now() / 1000 - time);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "now";
}

/** A time (seconds since 1970) in full, in the visitor's own time zone. */
export function moment(time) {
  return typeof time === "number" ? new Date(time * 1000).toLocaleString() : NONE;
}
