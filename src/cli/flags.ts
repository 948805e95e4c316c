import { parseTime } from "../api/time.ts";
import { type MicroCredits, parseCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";

const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;
const LINE = /^[^\p{Cc}]{1,200}$/u;
const DURATION = /^(\d{1,6})([smhdw])$/;
const DURATION_WORDS = "a number with s, m, h, d or w, such as 90m or 30d";
const DATE_WORDS = "a date as YYYY-MM-DD (from 00:00 UTC on), or a time such as 2030-01-31T18:00:00Z";

/** Parses an amount of credits; 0 is refused unless `orNone`. Throws OperatorError naming the flag or argument. */
export function creditsFlag(flag: string, text: string, options: { orNone: boolean }): MicroCredits {
  const amount = /[eE]/.test(text) ? undefined : parseCredits(text);
  if (amount !== undefined && (options.orNone || amount > 0n)) return amount;
  const least = options.orNone ? "0 or more" : "above 0";
  refuse(flag, text, `a decimal number of credits, ${least}, with at most 6 decimals`);
}

/** Checks a text of one line; null where the flag was not given. Throws OperatorError naming the flag. */
export function textFlag(flag: string, text: string | undefined): string | null {
  if (text === undefined) return null;
  if (LINE.test(text)) return text;
  refuse(flag, text.slice(0, 60), "1 to 200 characters on one line");
}

/** Parses a duration such as `1h` or `0` into milliseconds. Throws OperatorError naming the flag. */
export function durationFlag(flag: string, text: string): number {
  const durationMs = text === "0" ? 0 : parseDuration(text);
  if (durationMs === undefined) refuse(flag, text, DURATION_WORDS);
  return durationMs;
}

/** Parses a date or a time, past or future, into milliseconds since 1970. Throws OperatorError naming the flag. */
export function timeFlag(flag: string, text: string): number {
  return parseTime(text) ?? refuse(flag, text, DATE_WORDS);
}

/** Parses a date or a time in the future into milliseconds since 1970. Throws OperatorError naming the flag. */
export function dateFlag(flag: string, text: string, nowMs: number): number {
  const timeMs = parseTime(text);
  if (timeMs === undefined) refuse(flag, text, DATE_WORDS);
  if (timeMs <= nowMs) refuse(flag, text, "a time in the future");
  return timeMs;
}

/** Parses a date or a time in the future, or a duration from now on, into milliseconds since 1970. Throws OperatorError naming the flag. */
export function expiryFlag(flag: string, text: string, nowMs: number): number {
  const durationMs = parseDuration(text);
  if (durationMs === undefined && parseTime(text) === undefined) {
    refuse(flag, text, `${DURATION_WORDS}, or ${DATE_WORDS}`);
  }
  if (durationMs === 0) refuse(flag, text, "a time in the future");
  return durationMs === undefined ? dateFlag(flag, text, nowMs) : nowMs + durationMs;
}

function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  return unit === undefined ? undefined : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

function refuse(flag: string, found: string, allowed: string): never {
  throw new OperatorError(`${flag} is ${JSON.stringify(found)}, but must be ${allowed}.`);
}
