/** Numbers are always formatted in English, like all texts of the console. */
const LOCALE = "en";

const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const cents = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const amount = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 6 });
const exact = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 6 });
const unitPrice = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 12 });
const precise = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3, maximumFractionDigits: 6 });
const short = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat(LOCALE, { style: "percent", maximumSignificantDigits: 2 });
const oneDecimal = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Formats credits for a quick look: two decimals from 1 credit, three significant digits below. */
export function formatCredits(credits: number): string {
  const size = Math.abs(credits);
  if (size === 0) return "0";
  if (size >= 1_000_000) return short.format(credits);
  return size >= 1 ? cents.format(credits) : precise.format(credits);
}

/** Formats credits exactly, to the micro-credit. */
export function formatExactCredits(credits: number): string {
  return exact.format(credits);
}

/** Formats the price of one call, which can be less than a micro-credit. */
export function formatCallPrice(credits: number): string {
  return unitPrice.format(credits);
}

/** Formats credits exactly, to the micro-credit, with at least two decimals. */
export function formatAmount(credits: number): string {
  return amount.format(credits);
}

/** Formats an amount of money with the code of its currency. */
export function formatMoney(value: number, currency: string): string {
  return new Intl.NumberFormat(LOCALE, { style: "currency", currency, currencyDisplay: "code" }).format(value);
}

/** Formats a change of a balance with its sign. */
export function formatChange(credits: number): string {
  const sign = credits > 0 ? "+" : credits < 0 ? "−" : "";
  return `${sign}${amount.format(Math.abs(credits))}`;
}

export function formatCount(count: number): string {
  return whole.format(count);
}

/** Formats 12,345 as 12.3K, for axes and narrow tiles. */
export function formatShort(count: number): string {
  return Math.abs(count) < 1 ? precise.format(count) : short.format(count);
}

/** Formats a fraction as a percentage. */
export function formatShare(share: number): string {
  return percent.format(share);
}

/** Formats milliseconds in a suitable unit. */
export function formatDuration(durationMs: number): string {
  if (durationMs < 1000) return `${whole.format(durationMs)} ms`;
  const seconds = durationMs / 1000;
  if (seconds < 10) return `${cents.format(seconds)} s`;
  if (seconds < 60) return `${oneDecimal.format(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** Formats tokens per second. */
export function formatSpeed(tokens: number, durationMs: number): string {
  return `${whole.format((tokens * 1000) / durationMs)} tokens/s`;
}

/** Describes the number of days that the credits last at the recent spending rate. */
export function formatLasting(days: number | null): string {
  if (days === null) return "No spending in the last 7 days";
  if (days <= 0) return "No credits left";
  if (days < 1) return `About ${Math.max(1, Math.round(days * 24))} h at the current rate`;
  if (days > 730) return "More than 2 years at the current rate";
  const rounded = Math.round(days);
  return `About ${whole.format(rounded)} ${rounded === 1 ? "day" : "days"} at the current rate`;
}

/** Formats a count with its noun: `1 request`, `2 requests`. */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${whole.format(count)} ${count === 1 ? one : many}`;
}
