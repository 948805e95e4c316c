import { useSyncExternalStore } from "react";
import { formatCredits, formatExactCredits } from "../format/numbers.ts";
import { formatClock, formatDate, formatDistance, formatMoment } from "../format/times.ts";

/** Rounded credits, with the exact amount as a tooltip. */
export function Credits({ value }: { value: number }) {
  return (
    <span className="figures nowrap" title={`${formatExactCredits(value)} credits`}>
      {formatCredits(value)}
    </span>
  );
}

const TICK_MS = 10_000;
let nowMs = Date.now();
const watchers = new Set<() => void>();
let ticking: ReturnType<typeof setInterval> | undefined;

function watch(changed: () => void): () => void {
  watchers.add(changed);
  if (ticking === undefined) nowMs = Date.now();
  ticking ??= setInterval(() => {
    nowMs = Date.now();
    for (const notify of watchers) notify();
  }, TICK_MS);
  return () => {
    watchers.delete(changed);
    if (watchers.size > 0) return;
    clearInterval(ticking);
    ticking = undefined;
  };
}

/** Returns the current time for relative times; updated every ten seconds. */
export function useNow(): number {
  return useSyncExternalStore(watch, () => nowMs);
}

/** Relative time, with the exact time as a tooltip; `due` in place of a time that is less than ten seconds ahead, or over. */
export function Ago({ at, never = "Never", due }: { at: string | number | null; never?: string; due?: string }) {
  const now = useNow();
  if (at === null) return <span className="faint">{never}</span>;
  return (
    <time className="nowrap" dateTime={new Date(at).toISOString()} title={formatMoment(at)}>
      {due !== undefined && new Date(at).getTime() < now + TICK_MS ? due : formatDistance(at, now)}
    </time>
  );
}

/** Date and time, in two lines on narrow screens. */
export function Moment({ at }: { at: string }) {
  return (
    <time className="moment figures" dateTime={at}>
      <span>{formatDate(at)},</span> <span>{formatClock(at)}</span>
    </time>
  );
}
