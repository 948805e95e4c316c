import type { Limits } from "../api/types.ts";

/** What a field holds, read: its value, or what is wrong with it. */
export type Read<T> = { value: T } | { error: string };

/** Credits with at most six decimals. */
export function readCredits(text: string): Read<number> {
  const trimmed = text.trim().replaceAll(",", "");
  if (trimmed === "") return { error: "How many credits?" };
  if (!/^\d+(\.\d+)?$/.test(trimmed)) return { error: "A number such as 100 or 0.5." };
  if (!/^\d+(\.\d{1,6})?$/.test(trimmed)) return { error: "At most six decimals: a credit has a million parts." };
  const value = Number(trimmed);
  if (value === 0) return { error: "More than nothing." };
  return value > 1e9 ? { error: "At most a billion credits at once." } : { value };
}

/** The same, where nothing is an answer too. */
export function readOptionalCredits(text: string): Read<number | null> {
  return text.trim() === "" ? { value: null } : readCredits(text);
}

const PRIORITY_MAX = 1000;

export function readPriority(text: string): Read<number> {
  const value = /^\d{1,4}$/.test(text.trim()) ? Number(text) : Number.NaN;
  return value <= PRIORITY_MAX ? { value } : { error: `A whole number from 0 to ${PRIORITY_MAX}.` };
}

export type LimitTexts = Record<keyof Limits, string>;
export const NO_LIMITS: LimitTexts = { requests_per_minute: "", tokens_per_minute: "", concurrent_requests: "" };

export function limitTexts(limits: Limits | null): LimitTexts {
  const texts = { ...NO_LIMITS };
  for (const [name, value] of Object.entries(limits ?? {})) texts[name as keyof Limits] = String(value);
  return texts;
}

/** Limits of one's own; null: the service's are in force. */
export function readLimits(texts: LimitTexts): Read<Limits | null> & { wrong?: keyof Limits } {
  const limits: Limits = {};
  for (const [name, text] of Object.entries(texts) as [keyof Limits, string][]) {
    const trimmed = text.trim().replaceAll(",", "");
    if (trimmed === "") continue;
    if (!/^[1-9]\d{0,8}$/.test(trimmed)) return { error: "A whole number from 1 on, or nothing.", wrong: name };
    limits[name] = Number(trimmed);
  }
  return { value: Object.keys(limits).length === 0 ? null : limits };
}

const DAY_MS = 86_400_000;

/** When something ends: after so many days, at the end of a day of the reader's calendar, or never (empty). */
export function readExpiry(choice: string, day: string, nowMs: number): Read<string | null> {
  if (choice === "never") return { value: null };
  if (choice !== "date") return { value: new Date(nowMs + Number(choice) * DAY_MS).toISOString() };
  const end = new Date(`${day}T23:59:59`);
  if (Number.isNaN(end.getTime())) return { error: "Choose a day." };
  return end.getTime() <= nowMs ? { error: "That day is over." } : { value: end.toISOString() };
}
