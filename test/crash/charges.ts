import { type Limits, sumOfTokens, type TrialActions } from "./actions.ts";
import type { Event, Hold, Tokens } from "./books.ts";
import { priceOf } from "./prices.ts";
import type { Record } from "./records.ts";
import type { Usage } from "./script.ts";

interface Case {
  record: Record;
  hold: Hold | undefined;
  /** The hold as it was last read while it was open; undefined if it never was. */
  seen: SeenHold | undefined;
  events: Event[];
  actions: TrialActions;
  limits: Limits;
}

/** An open hold as it was read, with its expiry and the time of reading. */
export interface SeenHold {
  expiresAt: number;
  seenAt: number;
}

/** Returns the faults in the charge of one request: invariants 5 and 6, and the charging rule. */
export function checkCharge(one: Case): string[] {
  const { record, hold } = one;
  const { client, upstream } = record;
  if (client.end === undefined) return ["its client still waits"];
  const faults = answerFaults(one);
  if (upstream.asked > 1) faults.push(`the upstream was asked ${upstream.asked} times`);
  const got = client.status === 200 && client.end !== "error";
  if (hold === undefined) {
    if (got || upstream.asked > 0) faults.push(`it has no hold: ${describe(record)}`);
    return faults;
  }
  if (hold.state === "open") return [...faults, "its hold is open"];
  return [...faults, ...chargeFaults(one, hold)];
}

/** Returns the answers that no client may receive: missing permission, missing credits, or an internal error. */
function answerFaults({ record: { client }, actions }: Case): string[] {
  const { status = 200, end, code } = client;
  const isRefused = status === 402 || (status === 429 && code === "credits_held");
  if ((isRefused && actions.lacksCredits) || (status === 408 && actions.wasSuspended)) return [];
  // A proxy answers like this for a node that was killed; answers of the service have a code.
  if (status === 502 && code === undefined && actions.killedAt !== undefined) return [];
  if (status !== 200 && !(actions.storeWasUnavailable && status === 503))
    return [`it was answered ${status} ${code ?? ""}`];
  if (end === "error" && status === 200 && !(actions.storeWasUnavailable && code === "store_unavailable")) {
    return [`its stream ended with the error ${code}`];
  }
  if (end === "cut" && actions.killedAt === undefined) return ["its answer was cut off, and no service was killed"];
  return [];
}

function chargeFaults(one: Case, hold: Hold): string[] {
  const { record, events } = one;
  const { client, upstream, script } = record;
  const tokens = sumOfTokens(events);
  const total = events.reduce((sum, { cost, shortfall }) => sum + cost + shortfall, 0n);
  const charge = `charged ${total} (${hold.state}, ${events.map(({ ending }) => ending).join()}): ${describe(record)}`;
  if (client.end === "all") return completeFaults(one, hold, tokens, total).map((fault) => `${fault}; ${charge}`);
  if ((client.status ?? 200) >= 400) return total === 0n ? [] : [`an error was charged; ${charge}`];
  if (upstream.asked === 0 && total > 0n) return [`charged, and no upstream was asked; ${charge}`];
  if (script.usage !== null && upstream.sentUsage && isUsage(tokens, script.usage)) return [];
  if (upstream.sentAll && script.usage === null && events[0]?.ending === "complete") return [];
  return partialFaults(one, hold, tokens).map((fault) => `${fault}; ${charge}`);
}

/** Invariant 5: a complete answer is charged by the usage that the upstream reported. */
function completeFaults({ record }: Case, hold: Hold, tokens: Tokens, total: bigint): string[] {
  const { client, upstream, script, streamed } = record;
  const { usage } = client;
  const faults: string[] = [];
  if (hold.state !== "charged") faults.push("a complete answer is not charged");
  if (!upstream.sentAll) faults.push("the answer was complete before the upstream's was");
  if (client.wordsAt.length !== script.words) faults.push(`${client.wordsAt.length} of ${script.words} words came`);
  if (usage === undefined) return [...faults, "a complete answer has no usage"];
  if (!isUsage(tokens, { ...usage, prompt_tokens_details: cachedOf(usage) }))
    faults.push("the reported usage is not booked");
  if (script.usage !== null && !isUsage(tokens, script.usage)) faults.push("the usage reported is not booked");
  if (script.usage === null && streamed && tokens.output_tokens !== BigInt(script.words)) {
    faults.push("the words that passed were counted otherwise");
  }
  if (total !== priceOf(tokens)) faults.push(`the usage costs ${priceOf(tokens)}`);
  if (BigInt(Math.round(usage.cost * 1e6)) !== total) faults.push(`the client received the cost ${usage.cost}`);
  return faults;
}

/** A partial stream is charged its input, at least what was last known to be delivered, and at most what was produced. */
function partialFaults({ record, seen, events, actions, limits }: Case, hold: Hold, tokens: Tokens): string[] {
  const { client, upstream, streamed } = record;
  const output = Number(tokens.output_tokens + tokens.reasoning_tokens);
  if (!streamed) {
    return events.some(({ cost }) => cost > 0n) && client.end !== "gave up" ? ["a part of a whole was charged"] : [];
  }
  const faults: string[] = [];
  if (output > upstream.words) faults.push(`${output} tokens are charged of ${upstream.words} that were produced`);
  // The last renewal of a hold that was never settled. A settlement covers everything that was delivered.
  const isRecovered = events[0]?.ending === "recovered";
  const renewedAt = seen === undefined ? Number.NEGATIVE_INFINITY : seen.expiresAt - limits.holdLifeMs;
  const knownAt = isRecovered ? Math.max(renewedAt - limits.slackMs, actions.bookedAt ?? 0) : client.endedAt;
  const known = hold.state === "released" ? client.wordsAt.length : countUntil(client.wordsAt, knownAt);
  if (output < known) faults.push(`${output} tokens are charged of ${known} that were delivered`);
  if (known > 0 && tokens.input_tokens + tokens.cached_input_tokens === 0n) faults.push("its input is not charged");
  const { killedAt = Number.POSITIVE_INFINITY } = actions;
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

/** The service omits the detail if it is 0. */
function cachedOf(usage: Partial<Usage>): Usage["prompt_tokens_details"] {
  return usage.prompt_tokens_details ?? { cached_tokens: 0 };
}

function describe({ streamed, client, upstream }: Record): string {
  const { status, end, code, wordsAt } = client;
  const kind = streamed ? "streamed" : "whole";
  const produced = `${upstream.words} words${upstream.sentUsage ? ", usage" : ""}${upstream.sentAll ? ", all" : ""}`;
  return `${kind}, client ${status} ${wordsAt.length} words ${end} ${code ?? ""}, upstream asked ${upstream.asked}, sent ${produced}`;
}
