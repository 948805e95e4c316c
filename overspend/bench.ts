import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Received } from "./client.ts";
import { type Account, type Gateway, urlBelow } from "./gateway.ts";
import { type Attempt, addUp, type Intent, type Judgement, judgeAccount } from "./judge.ts";
import { priceOf } from "./money.ts";
import type { GatewayProcess } from "./process.ts";
import type { Script } from "./script.ts";
import type { AnswerSource } from "./source.ts";

/** Tokens that the hold of a gateway may add to the bytes of a prompt. */
const HOLD_TOKENS_ADDED = 600;
const CALLED_INTERVAL_MS = 5;
/** Time after which a call that is not seen is taken to run. */
const CALLED_UNSEEN_MS = 300;
const CALLED_LIMIT_MS = 10_000;
const RETRY_PAUSE_MS = 50;
const ATTEMPTS_MAX = 3;

/** A request of a trial. */
export interface Case {
  name: string;
  streamed: boolean;
  script: Script;
  leavesAfterWords?: number;
  /** True if the client disconnects once the upstream was called. */
  leavesWhenCalled?: boolean;
  /** True if the client repeats a failed attempt as SDKs do. */
  retries?: boolean;
}

/** A case that could not be played, with the reason. */
export interface NotRun {
  name: string;
  reason: string;
}

/** Reads of the gateway's books that only some adapters have. */
export interface Books {
  mark(id: string): object;
  chargesByIntent(account: Account): Promise<Map<string, bigint>>;
}

export interface BenchOptions {
  gateway: Gateway;
  source: AnswerSource;
  books: Books | undefined;
  process: GatewayProcess | undefined;
  /** Addresses of the gateway: the target, whose process can be killed, and its other nodes. */
  nodes: readonly URL[];
  /** Requests that are sent at once. */
  requests: number;
  /** Kills of the gateway. */
  rounds: number;
}

/** An account of a trial with the requests that were made on it. */
export interface Tab {
  account: Account;
  intents: Intent[];
}

/** Sends the requests of the trials and collects what happened to them. */
export class Bench {
  readonly options: BenchOptions;
  /** Every attempt, for the log. */
  readonly attempts: { id: string; name: string; attempt: Attempt }[] = [];
  readonly #client = new Client();
  readonly #run = Date.now().toString(36);
  #accounts = 0;
  #intents = 0;
  #sent = 0;

  constructor(options: BenchOptions) {
    this.options = options;
  }

  /** Price of an answer of some tokens, with the most that its prompt can cost. */
  priceAtMost(tokens: number): bigint {
    return priceOf(this.options.source.rules.prices, HOLD_TOKENS_ADDED, tokens);
  }

  /** Creates an account with credits. */
  async open(trial: string, granted: bigint): Promise<Tab> {
    this.#accounts += 1;
    const name = `overspend ${this.#run} ${trial} ${this.#accounts}`;
    return { account: await this.options.gateway.createAccount(name, granted), intents: [] };
  }

  /** Returns the reason if nothing here can follow the script of a case. */
  refusalOf({ name, script }: Case): NotRun | undefined {
    const prepared = this.options.source.prepare(`${this.#run}-0`, script);
    return "refusal" in prepared ? { name, reason: prepared.refusal } : undefined;
  }

  /** Plays a case on an account; returns the reason if it could not be played. */
  async play(tab: Tab, one: Case): Promise<NotRun | undefined> {
    const { source, books } = this.options;
    this.#intents += 1;
    const id = `${this.#run}-${this.#intents}`;
    const prepared = source.prepare(id, one.script);
    if ("refusal" in prepared) return { name: one.name, reason: prepared.refusal };
    const { model, prompt } = prepared;
    const body = {
      ...{ model, messages: [{ role: "user", content: prompt }], max_tokens: one.script.tokens },
      ...(one.streamed && { stream: true, stream_options: { include_usage: true } }),
      ...books?.mark(id),
    };
    const attempts: Attempt[] = [];
    const intent: Intent = { id, name: one.name, attempts };
    tab.intents.push(intent);
    let isReached = false;
    for (let retryCount = 0; retryCount < ATTEMPTS_MAX; retryCount += 1) {
      if (retryCount > 0) await sleep(RETRY_PAUSE_MS);
      const before = source.callCount(id) ?? 0;
      const killsBefore = this.#kills;
      const node = this.#nextNode();
      const received = await this.#send(node, tab.account.key, id, one, body, retryCount);
      const { isReached: wasReached, upstream } = source.observe(id, one.script, before, received);
      const isKilled = node === this.options.nodes[0] && this.#kills > killsBefore && !received.isComplete;
      const asked = { streamed: one.streamed, promptBytes: Buffer.byteLength(prompt), tokensMax: one.script.tokens };
      const attempt = { received, ...asked, upstream, isKilled };
      attempts.push(attempt);
      this.attempts.push({ id, name: one.name, attempt });
      isReached ||= wasReached;
      if (one.retries !== true || !isRetried(received)) break;
    }
    const status = attempts.at(-1)?.received.status ?? "no response";
    return isReached ? undefined : { name: one.name, reason: `the gateway did not call its upstream (${status})` };
  }

  get #kills(): number {
    return this.options.process?.kills ?? 0;
  }

  /** Returns the nodes in turn, the target first. A repetition mostly meets another node than the attempt before. */
  #nextNode(): URL {
    const { gateway, nodes } = this.options;
    const node = nodes[this.#sent % nodes.length] ?? gateway.target;
    this.#sent += 1;
    return node;
  }

  #send(node: URL, key: string, id: string, one: Case, body: object, retryCount: number): Promise<Received> {
    const url = urlBelow(node, this.options.gateway.description.completionsPath);
    return this.#client.send({
      ...{ url, key, body, streamed: one.streamed, retryCount },
      leavesAfterWords: one.leavesAfterWords,
      leavesWhen: one.leavesWhenCalled === true ? this.#called(id) : undefined,
    });
  }

  async #called(id: string): Promise<void> {
    const { source } = this.options;
    if (source.callCount(id) === undefined) return sleep(CALLED_UNSEEN_MS);
    const untilMs = Date.now() + CALLED_LIMIT_MS;
    while (source.callCount(id) === 0 && Date.now() < untilMs) await sleep(CALLED_INTERVAL_MS);
    // The gateway has sent its request; it may wait for the answer now.
    await sleep(CALLED_INTERVAL_MS);
  }

  /** Judges accounts once their charges are final. */
  async judge(tabs: readonly Tab[]): Promise<Judgement> {
    const { gateway, source, books } = this.options;
    const judgements = await Promise.all(
      tabs.map(async ({ account, intents }) => {
        const charged = await gateway.settledCharges(account);
        const chargedByIntent = await books?.chargesByIntent(account);
        return judgeAccount({ granted: account.granted, charged, chargedByIntent, intents }, source.rules);
      }),
    );
    return addUp(judgements);
  }
}

/** Decides like the SDKs: an error of the connection or of the server, a rate limit, and an answer that ended early. */
function isRetried({ status, isComplete, hasLeft }: Received): boolean {
  if (isComplete || hasLeft) return false;
  return status === undefined || status >= 500 || [200, 408, 409, 429].includes(status);
}
