import { setTimeout as sleep } from "node:timers/promises";
import type { Bench, Case, NotRun, Tab } from "./bench.ts";
import type { Intent, Judgement } from "./judge.ts";
import type { Act, UsageLie } from "./script.ts";

/** The result of one trial that was played. */
export interface TrialResult {
  judgement: Judgement;
  intents: Intent[];
  notRun: NotRun[];
}

export interface Trial {
  name: string;
  title: string;
  /** Returns the reason why the trial cannot be played here. */
  refusal(bench: Bench): string | undefined;
  play(bench: Bench): Promise<TrialResult>;
}

const TOKENS = 20;
/** Long enough that no tolerance for small differences between a report and a text hides a lie. */
const TOKENS_OF_LIES = 200;
const PAUSE_MS = 10;
const SLOW_PAUSE_MS = 50;
const ANSWERS_GRANTED = 5;
const ANSWERS_TOPPED_UP = 2;
const BURSTS_MAX = 6;
const CASES_AT_ONCE = 4;
const WORDS_BEFORE_LEAVING = 4;
const KILLED_REQUESTS_MAX = 12;
/** Times in the middle of the killed answers, and around their ends. */
const KILL_AFTER_MS = [20, 120, 200, 215, 230, 245];
/** Answers before a kill, which it must not undo. */
const ANSWERS_BEFORE_KILL = 2;

const answer: Act = { kind: "answer" };
const slowAnswer: Act = { kind: "answer", pauseMs: PAUSE_MS };
/** Slow enough that a client that leaves leaves the upstream in the middle. */
const steadyAnswer: Act = { kind: "answer", pauseMs: SLOW_PAUSE_MS };

/** The trials of the benchmark, in the order in which they are played. */
export const TRIALS: readonly Trial[] = [
  {
    name: "concurrency",
    title: "Many requests at once on credits that are worth a few answers",
    refusal: () => undefined,
    play: playConcurrency,
  },
  faultTrial("clients-leave", "Clients that disconnect in the middle", [
    ...[1, WORDS_BEFORE_LEAVING, TOKENS].map((words) => ({
      ...{ name: `the client leaves after ${words} of ${TOKENS} words`, streamed: true, leavesAfterWords: words },
      script: { tokens: TOKENS, acts: [steadyAnswer] as const },
    })),
    {
      ...{ name: "the client leaves while it waits, not streamed", streamed: false, leavesWhenCalled: true },
      script: { tokens: TOKENS, acts: [steadyAnswer] },
    },
  ]),
  faultTrial("cut-answers", "Upstreams that break off in the middle of an answer", [
    ...bothWays("reset in the middle", [{ kind: "break", afterTokens: 7, by: "reset" }]),
    ...bothWays("error in the middle", [{ kind: "break", afterTokens: 7, by: "error" }]),
    ...bothWays("end in the middle", [{ kind: "break", afterTokens: 7, by: "end" }]),
    ...bothWays("reset before the report", [{ kind: "break", afterTokens: TOKENS, by: "reset" }]),
  ]),
  faultTrial("lying-upstreams", "Upstreams whose report of tokens is absent or wrong", [
    ...(["absent", "null", "zero", "negative", "huge", "huge prompt", "fraction", "text"] as const).flatMap(lie),
  ]),
  faultTrial("resets", "Upstreams that fail before the first token", [
    ...bothWays("status 500", [{ kind: "status", status: 500 }]),
    ...bothWays("status 429", [{ kind: "status", status: 429 }]),
    ...bothWays("status 400", [{ kind: "status", status: 400 }]),
    ...bothWays("connection reset", [{ kind: "hang up" }]),
    ...bothWays("a page instead of an answer", [{ kind: "page" }]),
  ]),
  faultTrial("retries", "Clients that repeat a failed request as SDKs do", [
    ...retried("status 500, then an answer", [{ kind: "status", status: 500 }, answer]),
    ...retried("connection reset, then an answer", [{ kind: "hang up" }, answer]),
    ...retried("cut in the middle, then an answer", [{ kind: "break", afterTokens: 7, by: "reset" }, answer]),
    ...retried("always status 503", [{ kind: "status", status: 503 }]),
  ]),
  {
    name: "kill",
    title: "Kills of the gateway (SIGKILL) under load",
    refusal: ({ options }) =>
      options.process === undefined ? "it needs --command or --pid-file, which name the process to kill" : undefined,
    play: playKills,
  },
];

function bothWays(name: string, acts: readonly [Act, ...Act[]], tokens = TOKENS): Case[] {
  return [true, false].map((streamed) => ({
    ...{ name: `${name}, ${streamed ? "streamed" : "not streamed"}`, streamed },
    script: { tokens, acts },
  }));
}

function lie(usage: UsageLie): Case[] {
  return bothWays(`usage ${usage}`, [{ kind: "answer", usage }], TOKENS_OF_LIES);
}

function retried(name: string, acts: readonly [Act, ...Act[]]): Case[] {
  return bothWays(name, acts).map((one) => ({ ...one, retries: true }));
}

/** A trial with an account for each case, so that the balance tells the charge of each. */
function faultTrial(name: string, title: string, cases: readonly Case[]): Trial {
  return { name, title, refusal: () => undefined, play: (bench) => playCases(bench, name, cases) };
}

async function playCases(bench: Bench, trial: string, cases: readonly Case[]): Promise<TrialResult> {
  const tabs: Tab[] = [];
  const notRun = cases.flatMap((one) => bench.refusalOf(one) ?? []);
  const playable = cases.filter((one) => bench.refusalOf(one) === undefined);
  for (let first = 0; first < playable.length; first += CASES_AT_ONCE) {
    const played = playable.slice(first, first + CASES_AT_ONCE).map(async (one) => {
      const tab = await bench.open(trial, 2n * bench.priceAtMost(one.script.tokens));
      const missing = await bench.play(tab, one);
      if (missing !== undefined) notRun.push(missing);
      tabs.push(tab);
    });
    await Promise.all(played);
  }
  return resultOf(bench, tabs, notRun);
}

async function resultOf(bench: Bench, tabs: readonly Tab[], notRun: NotRun[]): Promise<TrialResult> {
  const judgement = await bench.judge(tabs);
  return { judgement, intents: tabs.flatMap(({ intents }) => intents), notRun };
}

function burst(bench: Bench, tab: Tab, count: number, act: Act): Promise<(NotRun | undefined)[]> {
  const script = { tokens: TOKENS, acts: [act] as const };
  // In pairs, because nodes take the requests in turn: each node gets both kinds.
  const one = (index: number): Case => ({ name: "one of many at once", streamed: index % 4 < 2, script });
  return Promise.all(Array.from({ length: count }, (_, index) => bench.play(tab, one(index))));
}

const completed = ({ intents }: Tab) =>
  intents.filter(({ attempts }) => attempts.some(({ received }) => received.isComplete)).length;

/** Sends bursts until none of their requests is answered any more, with a top-up in the middle of one of them. */
async function playConcurrency(bench: Bench): Promise<TrialResult> {
  const { gateway, requests } = bench.options;
  const price = bench.priceAtMost(TOKENS);
  const tab = await bench.open("concurrency", BigInt(ANSWERS_GRANTED) * price);
  await exhaust(bench, tab, requests);
  if (gateway.description.topUp !== undefined) {
    const running = burst(bench, tab, requests, answer);
    await gateway.topUp(tab.account, BigInt(ANSWERS_TOPPED_UP) * price);
    await running;
    await exhaust(bench, tab, requests);
  }
  if (completed(tab) === 0) throw new Error("no request was answered, although there were credits");
  return resultOf(bench, [tab], []);
}

async function exhaust(bench: Bench, tab: Tab, requests: number): Promise<void> {
  for (let count = 0; count < BURSTS_MAX; count += 1) {
    const before = completed(tab);
    await burst(bench, tab, requests, answer);
    if (completed(tab) === before) return;
  }
}

/** Kills the gateway while requests run, starts it again, and asks for more than the rest of the credits is worth. */
async function playKills(bench: Bench): Promise<TrialResult> {
  const { process, requests, rounds, gateway } = bench.options;
  if (process === undefined) throw new Error("there is no process to kill");
  const count = Math.min(requests, KILLED_REQUESTS_MAX);
  const tabs: Tab[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const tab = await bench.open("kill", BigInt(ANSWERS_GRANTED) * bench.priceAtMost(TOKENS));
    tabs.push(tab);
    await burst(bench, tab, ANSWERS_BEFORE_KILL, answer);
    const running = burst(bench, tab, count, slowAnswer);
    await sleep(KILL_AFTER_MS[round % KILL_AFTER_MS.length]);
    await process.kill();
    await running;
    await process.restart();
    await burst(bench, tab, count, answer);
  }
  // Credits that the kills left reserved are free now.
  for (const tab of tabs) {
    await gateway.settledCharges(tab.account);
    await burst(bench, tab, count, answer);
  }
  return resultOf(bench, tabs, []);
}
