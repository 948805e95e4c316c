import type { Received } from "./client.ts";
import { atLeastZero, priceOf, sum, type TokenPrices } from "./money.ts";

/** The upstream's part in an attempt. It is read when the charges are final: an upstream may emit more after its client has left. */
export interface Emission {
  /** Tokens that it wrote to the gateway. */
  readonly emittedTokens: number;
  /** Prompt tokens that it reported, with the true tokens of a complete answer; undefined if it reported no truth. */
  readonly reportedPromptTokens: number | undefined;
}

/** One attempt of an intent: what was sent, what the upstream emitted for it, and what the client received. */
export interface Attempt {
  received: Received;
  streamed: boolean;
  /** Bytes of the prompt. */
  promptBytes: number;
  /** Longest answer that the request allows. */
  tokensMax: number;
  upstream: Emission;
  /** True if the gateway was killed while the attempt ran. */
  isKilled: boolean;
}

/** One answer that a client wants, with its repetitions. */
export interface Intent {
  /** Name that the gateway's books may contain. */
  id: string;
  /** The case, for findings. */
  name: string;
  attempts: readonly Attempt[];
}

/** Bounds of a gateway that counts text with a tokenizer of its own, in percent of the words; 100 and 100 means exact. */
export interface Counting {
  leastPercent: number;
  mostPercent: number;
}

export interface Rules {
  prices: TokenPrices;
  counting: Counting;
}

/** An intent's price: what was delivered, and the bounds of a right charge. */
interface Verdict {
  delivered: bigint;
  least: bigint;
  most: bigint;
  /** Price of what arrived of answers that a kill of the gateway broke. */
  unfinished: bigint;
}

/** Most tokens that a provider adds to a prompt, such as a template; together they are worth less than a token of the answer. */
const PROMPT_TOKENS_ADDED = 512;

/** Returns the verdict over one attempt by itself. */
export function judgeAttempt(attempt: Attempt, { prices, counting }: Rules): Verdict {
  const { received, streamed, promptBytes, tokensMax, upstream, isKilled } = attempt;
  const { emittedTokens, reportedPromptTokens } = upstream;
  const { words, isComplete, hasLeft } = received;
  if (isComplete && reportedPromptTokens !== undefined) {
    const price = priceOf(prices, reportedPromptTokens, words);
    return { delivered: price, least: price, most: price, unfinished: 0n };
  }
  // Only the upstream knows how many tokens a prompt had. Without its word, it had at most one a byte.
  const most = (tokens: number) =>
    priceOf(prices, promptBytes + PROMPT_TOKENS_ADDED, ceilPercent(tokens, counting.mostPercent));
  const part = priceOf(prices, 0, words);
  const least = priceOf(prices, 0, Math.floor((words * counting.leastPercent) / 100));
  if (isComplete) return { delivered: part, least, most: most(words), unfinished: 0n };
  if (isKilled) return { delivered: 0n, least: 0n, most: most(emittedTokens), unfinished: part };
  // Only the provider knows what it had produced of an answer that is not streamed when the client left.
  if (hasLeft) return { delivered: part, least, most: most(streamed ? emittedTokens : tokensMax), unfinished: 0n };
  if (words === 0) return { delivered: 0n, least: 0n, most: 0n, unfinished: 0n };
  return { delivered: part, least, most: most(words), unfinished: 0n };
}

function ceilPercent(tokens: number, percent: number): number {
  return Math.ceil((tokens * percent) / 100);
}

/** Returns the verdict over an intent: its repetitions want one answer, so together they may cost what that answer costs. */
export function judgeIntent({ attempts }: Intent, rules: Rules): Verdict {
  const verdicts = attempts.map((attempt) => ({ ...judgeAttempt(attempt, rules), is: attempt.received.isComplete }));
  const whole = verdicts.filter(({ is }) => is);
  const unfinished = sum(verdicts.map((verdict) => verdict.unfinished));
  const [first] = whole;
  if (first !== undefined) return { ...first, unfinished };
  const largest = (amounts: bigint[]) => amounts.reduce((most, amount) => (amount > most ? amount : most), 0n);
  return {
    delivered: largest(verdicts.map(({ delivered }) => delivered)),
    least: largest(verdicts.map(({ least }) => least)),
    most: sum(verdicts.map(({ most }) => most)),
    unfinished,
  };
}

/** A holder of credits during a trial, with everything that was asked for on them. */
export interface JudgedAccount {
  granted: bigint;
  /** Sum that the gateway says it charged. */
  charged: bigint;
  /** Charge that the gateway names for each intent; undefined if it names none. */
  chargedByIntent: ReadonlyMap<string, bigint> | undefined;
  intents: readonly Intent[];
}

/** A wrong charge. */
export interface Finding {
  what: "overspent" | "double" | "lost";
  intent: string;
  least: bigint;
  most: bigint;
  charged: bigint;
}

export interface Judgement {
  granted: bigint;
  delivered: bigint;
  charged: bigint;
  overspent: bigint;
  double: bigint;
  lost: bigint;
  unfinished: bigint;
  findings: Finding[];
}

/**
 * Compares what was delivered on an account with what was granted and charged. Where the gateway names the charge of each
 * intent, each is judged by itself, and so is the difference to the balance. Otherwise only the sums can be compared.
 */
export function judgeAccount({ granted, charged, chargedByIntent, intents }: JudgedAccount, rules: Rules): Judgement {
  const verdicts = intents.map((intent) => ({ intent, ...judgeIntent(intent, rules) }));
  const delivered = sum(verdicts.map((verdict) => verdict.delivered));
  const least = sum(verdicts.map((verdict) => verdict.least));
  const most = sum(verdicts.map((verdict) => verdict.most));
  const findings: Finding[] = [];
  let double = 0n;
  let lost = 0n;
  const compare = (intent: string, bounds: { least: bigint; most: bigint }, booked: bigint) => {
    const found = { intent, least: bounds.least, most: bounds.most, charged: booked };
    if (booked > bounds.most) findings.push({ what: "double", ...found });
    if (booked < bounds.least) findings.push({ what: "lost", ...found });
    double += atLeastZero(booked - bounds.most);
    lost += atLeastZero(bounds.least - booked);
  };
  if (chargedByIntent === undefined) {
    compare(intents.map(({ name }) => name)[0] ?? "no request", { least, most }, charged);
  } else {
    for (const { intent, ...bounds } of verdicts) {
      compare(`${intent.name} (${intent.id})`, bounds, chargedByIntent.get(intent.id) ?? 0n);
    }
    const booked = sum(chargedByIntent.values());
    compare("balance and charges of single requests", { least: booked, most: booked }, charged);
  }
  const overspent = atLeastZero(delivered - granted);
  if (overspent > 0n) findings.push({ what: "overspent", intent: "all requests", least, most: granted, charged });
  const unfinished = sum(verdicts.map((verdict) => verdict.unfinished));
  return { granted, delivered, charged, overspent, double, lost, unfinished, findings };
}

/** Adds up the judgements of several accounts. */
export function addUp(judgements: readonly Judgement[]): Judgement {
  const total = (key: Exclude<keyof Judgement, "findings">) => sum(judgements.map((judgement) => judgement[key]));
  return {
    granted: total("granted"),
    delivered: total("delivered"),
    charged: total("charged"),
    overspent: total("overspent"),
    double: total("double"),
    lost: total("lost"),
    unfinished: total("unfinished"),
    findings: judgements.flatMap(({ findings }) => findings),
  };
}
