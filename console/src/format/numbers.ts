/** Figures as the console writes them. One language, English, so that words and figures agree. */
const LOCALE = "en";

const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const cents = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const amount = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 6 });
const exact = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 6 });
const precise = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3, maximumFractionDigits: 6 });
const short = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat(LOCALE, { style: "percent", maximumSignificantDigits: 2 });
const oneDecimal = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Credits to be read at a glance: two decimals from one credit on, three digits that say something below it. */
export function formatCredits(credits: number): string {
  const size = Math.abs(credits);
  if (size === 0) return "0";
  if (size >= 1_000_000) return short.format(credits);
  return size >= 1 ? cents.format(credits) : precise.format(credits);
}

/** Credits to the last micro-credit, as the books have them. */
export function formatExactCredits(credits: number): string {
  return exact.format(credits);
}

/** Credits as an amount of money: to the last micro-credit, with at least two decimals. */
export function formatAmount(credits: number): string {
  return amount.format(credits);
}

/** Credits with a sign, for what changes a balance. */
export function formatChange(credits: number): string {
  const sign = credits > 0 ? "+" : credits < 0 ? "−" : "";
  return `${sign}${exact.format(Math.abs(credits))}`;
}

export function formatCount(count: number): string {
  return whole.format(count);
}

/** 12,345 as 12.3K: for axes and narrow tiles. */
export function formatShort(count: number): string {
  return Math.abs(count) < 1 ? precise.format(count) : short.format(count);
}

/** A share of 1. */
export function formatShare(share: number): string {
  return percent.format(share);
}

/** Milliseconds in the unit that suits them. */
export function formatDuration(durationMs: number): string {
  if (durationMs < 1000) return `${whole.format(durationMs)} ms`;
  const seconds = durationMs / 1000;
  if (seconds < 10) return `${cents.format(seconds)} s`;
  if (seconds < 60) return `${oneDecimal.format(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** Tokens a second. */
export function formatSpeed(tokens: number, durationMs: number): string {
  return durationMs <= 0 ? "–" : `${whole.format((tokens * 1000) / durationMs)} tokens/s`;
}

/** How long credits last when days go on costing what they cost of late. */
export function formatLasting(days: number | null): string {
  if (days === null) return "No spending in the last 7 days";
  if (days <= 0) return "No credits left";
  if (days < 1) return `About ${Math.max(1, Math.round(days * 24))} h at the current rate`;
  if (days > 730) return "More than 2 years at the current rate";
  const rounded = Math.round(days);
  return `About ${whole.format(rounded)} ${rounded === 1 ? "day" : "days"} at the current rate`;
}

/** `1 request`, `2 requests`. */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${whole.format(count)} ${count === 1 ? one : many}`;
}
