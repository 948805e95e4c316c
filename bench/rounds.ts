import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Contender } from "./contenders.ts";
import { type EndpointName, endpointOf, requestBody } from "./endpoints.ts";
import { MICRO_CREDITS_AN_ANSWER, mostMicroCredits } from "./payload.ts";
import type { Plan } from "./plan.ts";
import { type Processes, processorMs, run } from "./processes.ts";
import type { Cell, Memory } from "./report.ts";
import type { Load, Measured, MeasuredRound, Round, Target } from "./round.ts";

const LOAD = join(dirname(fileURLToPath(import.meta.url)), "load.ts");
export const WARM_UP_CONNECTIONS = 32;
/** Tollgate drops compiled code after a minute without requests, so none may rest that long while others have their turns. */
const REST_SECONDS_MAX = 50;
const WARM_UP_TURN_SECONDS = 4;
export const WARM_UP_SECONDS_MAX = 60;
const SAMPLE_EVERY_MS = 200;

/** A contender that answers one kind of request. */
export interface Entrant {
  name: string;
  contender: Contender;
  /** End of its name: the endpoint and the organizations, unless they are as by default. */
  request: string;
  endpoint: EndpointName;
  streamed: boolean;
  target: Target;
}

/** Answers of a contender that were charged, and those that the ends of rounds may have cut off. */
interface Charges {
  answers: number;
  cutOffMost: number;
  /** Micro-credits that one of the latter can cost at most. */
  dearest: number;
}

/** The rounds of a run, with what they say about each contender. */
export class Rounds {
  readonly notes: string[] = [];
  readonly #plan: Plan;
  readonly #processes: Processes;
  readonly #charges = new Map<Contender, Charges>();
  readonly #memories = new Map<Contender, Memory>();
  /** Length of a warm-up in which several answers end, even where their events are apart. */
  readonly #leastSeconds: number;

  constructor(plan: Plan, processes: Processes) {
    const { events, apartMs } = plan.pace;
    this.#plan = plan;
    this.#processes = processes;
    this.#leastSeconds = 1 + Math.ceil((2 * events * apartMs) / 1_000);
  }

  /** Lets every contender answer each kind of request once. Only Portkey may fail here, and is then left out. */
  async enter(contenders: readonly Contender[], streamed: boolean): Promise<Entrant[]> {
    const entrants: Entrant[] = [];
    for (const contender of contenders) {
      for (const entrant of entrantsOf(contender, streamed, this.#plan)) {
        try {
          const bytes = await checkAnswer(entrant);
          const target = { ...entrant.target, leastBytes: Math.floor(bytes * 0.9) };
          entrants.push({ ...entrant, target });
          this.#count(entrant, 1, 0);
        } catch (error) {
          const failed = `${entrant.name}, ${streamed ? "streamed" : "unstreamed"}: ${String(error)}`;
          if (contender.name !== "Portkey") throw new Error(failed);
          this.notes.push(`Left out: ${failed}`);
        }
      }
    }
    const secondsMost = Math.floor(REST_SECONDS_MAX / Math.max(0, entrants.length - 1));
    if (this.#plan.seconds > secondsMost) {
      throw new Error(
        `--seconds can be at most ${secondsMost}, so that none of ${entrants.length} rests for a minute.`,
      );
    }
    return entrants;
  }

  /** Warms up each entrant with the same number of answers, in turns; V8 optimizes a service for a long time. */
  async warmUp(entrants: readonly Entrant[]): Promise<void> {
    const turns = entrants.map((entrant) => ({ entrant, answers: 0, seconds: 0 }));
    const isCold = ({ answers, seconds }: { answers: number; seconds: number }) =>
      answers < this.#plan.warmUp && seconds < WARM_UP_SECONDS_MAX;
    while (turns.some(isCold)) {
      for (const turn of turns.filter(isCold)) {
        const left = ((this.#plan.warmUp - turn.answers) * turn.seconds) / turn.answers;
        const seconds = Math.max(this.#leastSeconds, Math.min(WARM_UP_TURN_SECONDS, Math.ceil(left || 1)));
        const { answers } = await this.#measure(turn.entrant, { connections: WARM_UP_CONNECTIONS }, seconds);
        turn.answers += answers;
        turn.seconds += seconds;
      }
    }
    for (const { entrant, answers, seconds } of turns) {
      console.error(`${entrant.name}: warmed up with ${answers} answers in ${seconds} s`);
      if (answers >= this.#plan.warmUp) continue;
      this.notes.push(`${entrant.name} was warmed up with ${answers} answers in ${seconds} s.`);
    }
  }

  /** Measures the rounds of one kind of answer at one load: A B C, B C A, and so on. */
  async measureCells(entrants: readonly Entrant[], load: Load): Promise<Cell[]> {
    const cells = entrants.map(({ name: entrant, streamed, request }): Cell => {
      return { streamed, load, entrant, request, rounds: [] };
    });
    for (const entrant of entrants) await this.#measure(entrant, load, this.#leastSeconds);
    for (let round = 0; round < this.#plan.rounds; round += 1) {
      for (let turn = 0; turn < entrants.length; turn += 1) {
        const index = (round + turn) % entrants.length;
        const entrant = entrants[index];
        if (entrant === undefined) continue;
        const measured = await this.#measure(entrant, load, this.#plan.seconds);
        cells[index]?.rounds.push(measured);
        const { streamed, name } = entrant;
        console.error(
          `${streamed ? "streamed" : "unstreamed"}, ${JSON.stringify(load)}: ${name} ` +
            `${Math.round(measured.requestsPerSecond)}/s, p50 ${measured.p50Ms.toFixed(1)} ms, ` +
            `${measured.processorMicroseconds?.toFixed(0)} µs of processor time a request`,
        );
      }
    }
    return cells;
  }

  async #measure(entrant: Entrant, load: Load, seconds: number): Promise<MeasuredRound> {
    const { contender, target } = entrant;
    const { program, pids } = contender;
    const round: Round = { ...target, ...load, seconds };
    const allocatedBefore = await program.allocatedBytes();
    const beforeMs = processorMs(pids);
    const sampling = setInterval(() => this.#sample(contender), SAMPLE_EVERY_MS);
    const output = await run(process.execPath, [LOAD], { input: JSON.stringify(round) }).finally(() =>
      clearInterval(sampling),
    );
    const measured = JSON.parse(output) as Measured;
    const afterMs = processorMs(pids);
    const allocatedAfter = await program.allocatedBytes();
    this.#processes.assertRunning();
    const { answers, failures, statuses } = measured;
    if (failures > 0 || answers === 0) {
      throw new Error(`${entrant.name}: ${failures} failures and ${answers} answers, ${JSON.stringify(statuses)}`);
    }
    this.#count(entrant, answers, load.rate === undefined ? load.connections : 0);
    const each = (after: number | undefined, before: number | undefined, unit: number) =>
      after === undefined || before === undefined ? undefined : ((after - before) * unit) / answers;
    return {
      ...measured,
      processorMicroseconds: each(afterMs, beforeMs, 1_000),
      allocatedKiB: each(allocatedAfter, allocatedBefore, 1 / 1_024),
    };
  }

  #count({ contender, target: { body } }: Entrant, answers: number, cutOffMost: number): void {
    if (body === undefined) return;
    const counted = this.#charges.get(contender) ?? { answers: 0, cutOffMost: 0, dearest: 0 };
    this.#charges.set(contender, {
      answers: counted.answers + answers,
      cutOffMost: counted.cutOffMost + cutOffMost,
      dearest: Math.max(counted.dearest, mostMicroCredits(body.length)),
    });
  }

  /** Reads the memory of all contenders before their first request. */
  readStartedMemory(contenders: readonly Contender[]): void {
    for (const contender of contenders) {
      const started = contender.program.residentMiB();
      this.#memories.set(contender, { name: contender.name, started, highest: started, after: undefined });
    }
  }

  #sample(contender: Contender): void {
    const memory = this.#memories.get(contender);
    const now = contender.program.residentMiB();
    if (memory !== undefined && now !== undefined) memory.highest = Math.max(memory.highest ?? 0, now);
  }

  /** Returns the memory of all contenders, with that of now as the one after the load. */
  memories(): Memory[] {
    return [...this.#memories].map(([{ program }, memory]) => ({ ...memory, after: program.residentMiB() }));
  }

  /** Checks that every whole answer was charged, and otherwise only answers that the end of a round cut off. */
  async audit(contender: Contender): Promise<void> {
    const books = await contender.audit?.();
    if (books === undefined) return;
    const { ok, charges, chargedMicroCredits, heldMicroCredits } = books;
    const { answers, cutOffMost, dearest } = this.#charges.get(contender) ?? { answers: 0, cutOffMost: 0, dearest: 0 };
    const cutOff = charges - answers;
    const restMicroCredits = chargedMicroCredits - answers * MICRO_CREDITS_AN_ANSWER;
    const { name } = contender;
    if (!ok || heldMicroCredits !== 0 || cutOff < 0 || cutOff > cutOffMost) {
      throw new Error(
        `The books of ${name}: ${JSON.stringify(books)} for ${answers} answers, ${cutOffMost} cut off at most`,
      );
    }
    if (restMicroCredits < 0 || restMicroCredits > cutOff * dearest) {
      throw new Error(
        `The books of ${name}: ${restMicroCredits} micro-credits for ${cutOff} answers that were cut off`,
      );
    }
    this.notes.push(`The books of ${name} balance: ${answers} complete answers, ${charges} charged.`);
  }
}

/** Returns the kinds of requests that a contender answers: only Tollgate has several endpoints and organizations. */
function entrantsOf(contender: Contender, streamed: boolean, plan: Plan): Entrant[] {
  const counts = contender.audit === undefined ? [1] : plan.organizations;
  return plan.endpoints.flatMap((endpoint) => {
    const address = contender.address(endpoint, streamed);
    const { stream } = endpointOf(endpoint);
    if (address === undefined || (streamed && stream === undefined)) return [];
    const body = requestBody(endpoint, streamed, plan.promptBytes);
    return counts.map((count) => {
      const request = (endpoint === "chat" ? "" : `, ${endpoint}`) + (count === 1 ? "" : `, ${count} organizations`);
      const target: Target = {
        method: body === undefined ? "GET" : "POST",
        url: address.url,
        headers: address.headers.slice(0, count),
        body,
        leastBytes: 0,
        stream: streamed ? stream : undefined,
      };
      return { name: contender.name + request, contender, request, endpoint, streamed, target };
    });
  });
}

/**
 * Sends one request and reads the answer as a client would. Resolves with the bytes of a complete answer; throws, with the
 * response, if it differs from the upstream's.
 */
async function checkAnswer({ target, endpoint, streamed }: Entrant): Promise<number> {
  const { url, method, headers, body } = target;
  const signal = AbortSignal.timeout(10_000);
  const answer = await fetch(url, { method, headers: headers[0] ?? {}, body, signal });
  const text = await answer.text();
  if (answer.status !== 200 || !endpointOf(endpoint).isRight(text, streamed)) {
    throw new Error(`another answer than the upstream's, status ${answer.status}: ${text.slice(0, 300)}`);
  }
  return Buffer.byteLength(text);
}
