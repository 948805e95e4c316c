import type { Limits } from "../api/types.ts";
import { formatAmount } from "../format/numbers.ts";

/** Value of a field, or its error. */
export type Read<T> = { value: T } | { error: string };

/** Numbers in which commas can only group thousands. */
const GROUPED_DECIMAL = /^\d{1,3}(,\d{3})+\.\d+$/;
const GROUPED_MILLIONS = /^\d{1,3}(,\d{3}){2,}$/;
const GROUPED_WHOLE = /^\d{1,3}(,\d{3})+$/;

/**
 * Reads credits with at most six decimals. A comma is refused where it could be a decimal comma: `50,00` and `1,250` are
 * ambiguous, `1,250.50` and `1,250,000` are not.
 */
export function readCredits(text: string, allowsZero = false): Read<number> {
  const trimmed = text.trim();
  if (trimmed === "") return { error: "Enter an amount." };
  const isGrouped = GROUPED_DECIMAL.test(trimmed) || GROUPED_MILLIONS.test(trimmed);
  if (trimmed.includes(",") && !isGrouped) return { error: ambiguityOf(trimmed) };
  const digits = trimmed.replaceAll(",", "");
  if (!/^\d+(\.\d+)?$/.test(digits)) return { error: "Enter a number, such as 100 or 0.5." };
  if (!/^\d+(\.\d{1,6})?$/.test(digits)) return { error: "Enter at most six decimals." };
  const value = Number(digits);
  if (value === 0 && !allowsZero) return { error: "Must be greater than 0." };
  return value > 1e9 ? { error: "Must be at most 1,000,000,000." } : { value };
}

function ambiguityOf(text: string): string {
  const [whole = "", decimals = "", ...rest] = text.split(",");
  const isNumber = /^\d+$/.test(whole) && /^\d+$/.test(decimals) && rest.length === 0;
  if (!isNumber) return "Enter a number, such as 1250.50.";
  if (decimals.length === 3) return `Ambiguous: enter ${whole}${decimals} or ${whole}.${decimals}.`;
  return `Ambiguous: use a point for decimals, as in ${whole}.${decimals}.`;
}

/** Returns the error to show at a field. A blank field shows it only after the form was submitted. */
export function shownError<T>(read: Read<T>, text: string, isSubmitted: boolean): string | null {
  return "error" in read && (isSubmitted || text.trim() !== "") ? read.error : null;
}

/** Reads an optional amount of credits; null if it is blank. */
export function readOptionalCredits(text: string): Read<number | null> {
  return text.trim() === "" ? { value: null } : readCredits(text);
}

/** Reads an amount of at most `available` credits. */
export function readCreditsUpTo(text: string, available: number): Read<number> {
  const read = readCredits(text);
  if ("error" in read || read.value <= available) return read;
  return { error: `Only ${formatAmount(available)} credits are available.` };
}

const WARNINGS_MAX = 10;

/** Reads amounts of credits, one in each line; null if there are none. */
export function readWarnings(text: string): Read<number[] | null> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length > WARNINGS_MAX) return { error: `Enter at most ${WARNINGS_MAX} amounts.` };
  const amounts: number[] = [];
  for (const line of lines) {
    const read = readCredits(line);
    if ("error" in read) return { error: `${line.trim()}: ${read.error}` };
    amounts.push(read.value);
  }
  return { value: amounts.length === 0 ? null : [...new Set(amounts)] };
}

const PRIORITY_MAX = 1000;

export function readPriority(text: string): Read<number> {
  const value = /^\d{1,4}$/.test(text.trim()) ? Number(text) : Number.NaN;
  return value <= PRIORITY_MAX ? { value } : { error: `Enter a whole number from 0 to ${PRIORITY_MAX}.` };
}

/** Reads a whole number from 1 to a maximum. */
export function readWhole(text: string, most: number): Read<number> {
  const value = /^[1-9]\d{0,8}$/.test(text.trim()) ? Number(text) : Number.NaN;
  return value <= most ? { value } : { error: `Enter a whole number from 1 to ${most}.` };
}

export type LimitTexts = Record<keyof Limits, string>;
export const NO_LIMITS: LimitTexts = { requests_per_minute: "", tokens_per_minute: "", concurrent_requests: "" };

export function limitTexts(limits: Limits | null): LimitTexts {
  const texts = { ...NO_LIMITS };
  for (const [name, value] of Object.entries(limits ?? {})) texts[name as keyof Limits] = String(value);
  return texts;
}

/** Reads limits; null if all fields are blank. Commas can only group thousands. */
export function readLimits(texts: LimitTexts): Read<Limits | null> & { wrong?: keyof Limits } {
  const limits: Limits = {};
  for (const [name, text] of Object.entries(texts) as [keyof Limits, string][]) {
    const trimmed = text.trim();
    if (trimmed === "") continue;
    const digits = GROUPED_WHOLE.test(trimmed) ? trimmed.replaceAll(",", "") : trimmed;
    if (!/^[1-9]\d{0,8}$/.test(digits)) return { error: "Enter a whole number, or leave blank.", wrong: name };
    limits[name] = Number(digits);
  }
  return { value: Object.keys(limits).length === 0 ? null : limits };
}

const DAY_MS = 86_400_000;

/** Reads an expiry: after a number of days, at the end of a day in UTC, or never (null). */
export function readExpiry(choice: string, day: string, nowMs: number): Read<string | null> {
  if (choice === "never") return { value: null };
  if (choice !== "date") return { value: new Date(nowMs + Number(choice) * DAY_MS).toISOString() };
  const end = new Date(`${day}T23:59:59Z`);
  if (Number.isNaN(end.getTime())) return { error: "Select a date." };
  return end.getTime() <= nowMs ? { error: "Date is in the past." } : { value: end.toISOString() };
}
