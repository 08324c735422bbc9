// Numbers with their units, and moments.

const NARROW = "\u202f"; // narrow space between a number and its unit
const DASH = "\u2013";

/** Seconds in the unit that reads best. */
export function seconds(value, digits = 3) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (size === 0) return `0${NARROW}s`;
  if (size < 0.0995) return `${precise(value * 1000, 2)}${NARROW}ms`;
  if (size < 0.9995) return `${Math.round(value * 1000)}${NARROW}ms`;
  if (size >= 10 && size < 100 && Number.isInteger(value)) return `${value}${NARROW}s`;
  if (size < 60) return `${value.toFixed(size < 9.995 ? digits - 1 : 1)}${NARROW}s`;
  const sign = value < 0 ? "\u2212" : "";
  const whole = Math.round(size);
  if (whole < 3600 && whole % 60 === 0) return `${sign}${whole / 60}${NARROW}min`;
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)}${NARROW}min ${String(whole % 60).padStart(2, "0")}${NARROW}s`;
  if (whole < 86400) return `${sign}${Math.floor(whole / 3600)}${NARROW}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}${NARROW}min`;
  return `${sign}${Math.floor(whole / 86400)}${NARROW}d ${Math.floor((whole % 86400) / 3600)}${NARROW}h`;
}

function precise(value, digits) {
  const size = Math.abs(value);
  return size >= 10 ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : value.toPrecision(digits - 1);
}

export function signed(value) {
  if (value === null || value === undefined) return DASH;
  return value > 0 ? `+${seconds(value)}` : seconds(value).replace("-", "\u2212");
}

export function count(value) {
  return value === null || value === undefined ? DASH : Math.round(value).toLocaleString("en-GB");
}

/** "1 run", "2 runs". */
export function many(value, one, more = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : more}`;
}

export function percent(share, digits = 0) {
  return share === null || share === undefined ? DASH : `${(share * 100).toFixed(digits)}${NARROW}%`;
}

export function chance(value) {
  return value === null || value === undefined ? DASH : value.toFixed(2);
}

export function dollars(value) {
  if (value === null || value === undefined) return DASH;
  return `$${value >= 1 || value === 0 ? value.toFixed(2) : value.toPrecision(2)}`;
}

export function bytes(value) {
  if (value < 1024) return `${value}${NARROW}B`;
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(1)}${NARROW}KiB`;
  if (value < 1024 ** 3) return `${(value / 1024 ** 2).toFixed(1)}${NARROW}MiB`;
  return `${(value / 1024 ** 3).toFixed(1)}${NARROW}GiB`;
}

/** A moment (Unix seconds) as "14:03:22" today, else with its date. */
export function moment(at) {
  if (at === null || at === undefined) return DASH;
  const when = new Date(at * 1000);
  const clock = when.toLocaleTimeString("en-GB");
  const day = when.toLocaleDateString("sv-SE");
  return day === new Date().toLocaleDateString("sv-SE") ? clock : `${day} ${clock}`;
}

export function ago(at) {
  const since = Date.now() / 1000 - at;
  if (since < 5) return "now";
  if (since < 90) return `${Math.round(since)} s ago`;
  if (since < 5400) return `${Math.round(since / 60)} min ago`;
  if (since < 129600) return `${Math.round(since / 3600)} h ago`;
  return `${Math.round(since / 86400)} days ago`;
}
