import type { Event, Hold, Tokens } from "./books.ts";
import { type Doings, type Limits, sumOfTokens } from "./doings.ts";
import { priceOf } from "./prices.ts";
import type { Record } from "./records.ts";
import type { Usage } from "./script.ts";

interface Case {
  record: Record;
  hold: Hold | undefined;
  /** The last look at the hold while it was open; undefined where nobody looked. */
  seen: SeenHold | undefined;
  events: Event[];
  doings: Doings;
  limits: Limits;
}

/** An open hold as it was seen, with the times of its expiry and of the look. */
export interface SeenHold {
  expiresAt: number;
  seenAt: number;
}

/** Lists the faults of one request's charge: invariants 5 and 6, and the charging rule. */
export function checkCharge(one: Case): string[] {
  const { record, hold } = one;
  const { client, upstream } = record;
  if (client.end === undefined) return ["its client still waits"];
  const faults = answerFaults(one);
  if (upstream.asked > 1) faults.push(`the upstream was asked ${upstream.asked} times`);
  const got = client.status === 200 && client.end !== "error";
  if (hold === undefined) {
    if (got || upstream.asked > 0) faults.push(`it has no hold: ${toldBy(record)}`);
    return faults;
  }
  if (hold.state === "open") return [...faults, "its hold is open"];
  return [...faults, ...chargeFaults(one, hold)];
}

/** Lists errors that no client may get: about its rights or credits, or internal ones. */
function answerFaults({ record: { client }, doings }: Case): string[] {
  const { status = 200, end, code } = client;
  const isRefused = status === 402 || (status === 429 && code === "credits_held");
  if ((isRefused && doings.lacksCredits) || (status === 408 && doings.wasSuspended)) return [];
  if (status !== 200 && !(doings.storeWasAway && status === 503)) return [`it was answered ${status} ${code ?? ""}`];
  if (end === "error" && status === 200 && !(doings.storeWasAway && code === "store_unavailable")) {
    return [`its stream ended with the error ${code}`];
  }
  if (end === "cut" && doings.killedAt === undefined) return ["its answer was cut off, and nobody was killed"];
  return [];
}

function chargeFaults(one: Case, hold: Hold): string[] {
  const { record, events } = one;
  const { client, upstream, script } = record;
  const tokens = sumOfTokens(events);
  const total = events.reduce((sum, { cost, shortfall }) => sum + cost + shortfall, 0n);
  const told = `charged ${total} (${hold.state}, ${events.map(({ ending }) => ending).join()}): ${toldBy(record)}`;
  if (client.end === "all") return completeFaults(one, hold, tokens, total).map((fault) => `${fault}; ${told}`);
  if ((client.status ?? 200) >= 400) return total === 0n ? [] : [`an error was charged; ${told}`];
  if (upstream.asked === 0 && total > 0n) return [`charged, and no upstream was asked; ${told}`];
  if (script.usage !== null && upstream.sentUsage && isUsage(tokens, script.usage)) return [];
  if (upstream.sentAll && script.usage === null && events[0]?.ending === "complete") return [];
  return partialFaults(one, hold, tokens).map((fault) => `${fault}; ${told}`);
}

/** Invariant 5: whoever has a complete answer was charged the price of its usage, which is what the upstream reported. */
function completeFaults({ record }: Case, hold: Hold, tokens: Tokens, total: bigint): string[] {
  const { client, upstream, script, streamed } = record;
  const { usage } = client;
  const faults: string[] = [];
  if (hold.state !== "charged") faults.push("a complete answer is not charged");
  if (!upstream.sentAll) faults.push("the answer was complete before the upstream's was");
  if (client.wordsAt.length !== script.words) faults.push(`${client.wordsAt.length} of ${script.words} words came`);
  if (usage === undefined) return [...faults, "a complete answer has no usage"];
  if (!isUsage(tokens, { ...usage, prompt_tokens_details: cachedOf(usage) }))
    faults.push("the usage told is not booked");
  if (script.usage !== null && !isUsage(tokens, script.usage)) faults.push("the usage reported is not booked");
  if (script.usage === null && streamed && tokens.output_tokens !== BigInt(script.words)) {
    faults.push("the words that passed were counted otherwise");
  }
  if (total !== priceOf(tokens)) faults.push(`the usage costs ${priceOf(tokens)}`);
  if (BigInt(Math.round(usage.cost * 1e6)) !== total) faults.push(`the client was told ${usage.cost}`);
  return faults;
}

/** A part of a stream: the input, and at least what was delivered when it was last known, at most what was produced. */
function partialFaults({ record, seen, events, doings, limits }: Case, hold: Hold, tokens: Tokens): string[] {
  const { client, upstream, streamed } = record;
  const output = Number(tokens.output_tokens + tokens.reasoning_tokens);
  if (!streamed) {
    return events.some(({ cost }) => cost > 0n) && client.end !== "gave up" ? ["a part of a whole was charged"] : [];
  }
  const faults: string[] = [];
  if (output > upstream.words) faults.push(`${output} tokens are charged of ${upstream.words} that were produced`);
  // The last sign of life of a hold that nobody settled; a settlement knows all that was delivered.
  const isRecovered = events[0]?.ending === "recovered";
  const renewedAt = seen === undefined ? Number.NEGATIVE_INFINITY : seen.expiresAt - limits.holdLifeMs;
  const knownAt = isRecovered ? Math.max(renewedAt - limits.slackMs, doings.bookedAt ?? 0) : client.endedAt;
  const known = hold.state === "released" ? client.wordsAt.length : countUntil(client.wordsAt, knownAt);
  if (output < known) faults.push(`${output} tokens are charged of ${known} that were delivered`);
  if (known > 0 && tokens.input_tokens + tokens.cached_input_tokens === 0n) faults.push("its input is not charged");
  const { killedAt = Number.POSITIVE_INFINITY } = doings;
  if (isRecovered && seen !== undefined && seen.seenAt >= killedAt && client.end === "cut") {
    const lateMs = killedAt - limits.renewEveryMs - limits.slackMs - renewedAt;
    if (lateMs > 0) faults.push(`its hold was renewed last ${lateMs} ms too long before the kill`);
  }
  return faults;
}

function countUntil(times: readonly number[], until: number): number {
  return times.filter((at) => at <= until).length;
}

function isUsage(tokens: Tokens, usage: Usage): boolean {
  const cached = BigInt(usage.prompt_tokens_details.cached_tokens);
  return (
    tokens.input_tokens + tokens.cached_input_tokens + tokens.cache_write_tokens === BigInt(usage.prompt_tokens) &&
    tokens.cached_input_tokens === cached &&
    tokens.output_tokens + tokens.reasoning_tokens === BigInt(usage.completion_tokens)
  );
}

/** The service leaves the detail out where it is 0. */
function cachedOf(usage: Partial<Usage>): Usage["prompt_tokens_details"] {
  return usage.prompt_tokens_details ?? { cached_tokens: 0 };
}

function toldBy({ streamed, client, upstream }: Record): string {
  const { status, end, code, wordsAt } = client;
  const kind = streamed ? "streamed" : "whole";
  const produced = `${upstream.words} words${upstream.sentUsage ? ", usage" : ""}${upstream.sentAll ? ", all" : ""}`;
  return `${kind}, client ${status} ${wordsAt.length} words ${end} ${code ?? ""}, upstream asked ${upstream.asked}, sent ${produced}`;
}
