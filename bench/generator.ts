import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import type { Measured, Round } from "./round.ts";

const TIMEOUT_MS = 30_000;
/** Requests of the first second warm up the generator and open its connections; their times are not counted. */
const LEAD_IN_MS = 1_000;
/** Enough for the last event of a stream. */
const TAIL_LENGTH = 4_096;

/** Sends one round of requests with undici and checks every answer. */
class Generator {
  readonly #round: Round;
  readonly #pool: Pool;
  readonly #path: string;
  readonly #firstToken: RegExp | undefined;
  readonly #times = createHistogram({ figures: 3 });
  readonly #firstTokens = createHistogram({ figures: 3 });
  readonly #statuses: Record<string, number> = {};
  #sent = 0;
  #answers = 0;
  #failures = 0;

  constructor(round: Round) {
    this.#round = round;
    const { origin, pathname } = new URL(round.url);
    const connections = round.rate === undefined ? round.connections : null;
    this.#pool = new Pool(origin, { connections, headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS });
    this.#path = pathname;
    this.#firstToken = round.stream && new RegExp(round.stream.firstToken);
  }

  async run(): Promise<Measured> {
    const startedAtMs = performance.now();
    await (this.#round.rate === undefined ? this.#closedLoop() : this.#openLoop(this.#round.rate));
    const seconds = (performance.now() - startedAtMs) / 1_000;
    await this.#pool.close();
    return {
      answers: this.#answers,
      requestsPerSecond: this.#answers / seconds,
      p50Ms: this.#times.percentile(50) / 1_000,
      p99Ms: this.#times.percentile(99) / 1_000,
      firstTokenMs: this.#firstTokens.count === 0 ? undefined : this.#firstTokens.percentile(50) / 1_000,
      failures: this.#failures,
      statuses: this.#statuses,
    };
  }

  async #closedLoop(): Promise<void> {
    const { connections, seconds } = this.#round;
    const endsAtMs = performance.now() + seconds * 1_000;
    const connection = async () => {
      while (performance.now() < endsAtMs) await this.#ask(performance.now(), true);
    };
    await Promise.all(Array.from({ length: connections }, connection));
  }

  /** Sends each request when it is due, or as soon as this process runs; its time counts from when it was due. */
  async #openLoop(rate: number): Promise<void> {
    const running: Promise<void>[] = [];
    const startedAtMs = performance.now();
    const count = Math.round((LEAD_IN_MS / 1_000 + this.#round.seconds) * rate);
    while (running.length < count) {
      const afterMs = (running.length * 1_000) / rate;
      if (startedAtMs + afterMs > performance.now()) await sleep(1);
      else running.push(this.#ask(startedAtMs + afterMs, afterMs >= LEAD_IN_MS));
    }
    await Promise.all(running);
  }

  async #ask(dueAtMs: number, isTimed: boolean): Promise<void> {
    const { method, headers, body, leastBytes, stream } = this.#round;
    const path = this.#path;
    const options = { path, method, headers: headers[this.#sent % headers.length], body };
    this.#sent += 1;
    let status: number | string = "failed";
    let isWhole = false;
    try {
      const answer = await this.#pool.request(options);
      status = answer.statusCode;
      let bytes = 0;
      let tail = "";
      let awaitsText = isTimed && this.#firstToken !== undefined;
      for await (const chunk of answer.body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        tail = (tail + chunk.toString("latin1")).slice(-TAIL_LENGTH);
        if (!awaitsText || !this.#firstToken?.test(tail)) continue;
        awaitsText = false;
        recordSince(dueAtMs, this.#firstTokens);
      }
      isWhole = bytes >= leastBytes && tail.includes(stream?.last ?? "");
    } catch (error) {
      status = String(error);
    }
    this.#statuses[status] = (this.#statuses[status] ?? 0) + 1;
    if (status === 200 && isWhole) this.#answers += 1;
    else this.#failures += 1;
    if (isTimed) recordSince(dueAtMs, this.#times);
  }
}

function recordSince(dueAtMs: number, histogram: RecordableHistogram): void {
  histogram.record(Math.max(1, Math.round((performance.now() - dueAtMs) * 1_000)));
}

/** Sends one round of requests: in a closed loop, or at a fixed rate without waiting for answers. */
export function generate(round: Round): Promise<Measured> {
  return new Generator(round).run();
}
