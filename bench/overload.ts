/**
 * `npm run bench:overload`: sends streamed completions at growing rates, without waiting for answers, until the service
 * completes no more of them; then at three times the rate of the peak. Each answer takes a second of the upstream's time
 * and has 100 events. An answer counts if it takes ten seconds at most, and ends in the second half of the time in which
 * requests are sent: the first half fills the queues, which hold answers of several seconds. Options: --first rate a second,
 * --seconds of each rate, --limit of the event loop's delay in milliseconds, 0 to refuse nothing; --peak goodput a second, if
 * it is known; --connections that are open before each rate begins, as clients and proxies keep them; with 0, each is
 * opened when no other is idle, and each of `/healthz` too.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startOpenService } from "./open-service.ts";
import { type Peer, percentile } from "./peer.ts";

const UPSTREAM_EVERY_MS = 50;
const IN_TIME_MS = 10_000;
/** A connection without an answer for so long is lost. */
const LOST_MS = 30_000;
const GROWTH = 1.25;
/** Rate of the last round, as a multiple of the best goodput. */
const OVERLOAD = 3;
const TICK_MS = 10;

const { values } = parseArgs({
  options: {
    first: { type: "string", default: "50" },
    seconds: { type: "string", default: "15" },
    limit: { type: "string" },
    peak: { type: "string" },
    connections: { type: "string", default: "9000" },
  },
});
const seconds = Number(values.seconds);
const limitMs = values.limit === undefined ? undefined : Number(values.limit);

interface Round {
  /** Requests that were sent a second, which are fewer than intended if the load itself has too little of the machine. */
  sent: number;
  /** Answers a second that were complete in time, in the second half. */
  goodput: number;
  refused: number;
  late: number;
  /** Answers that broke off, and connections that were closed without one. */
  broken: number;
  waits: number[];
  health: string;
}

const OPENED_AT_ONCE = 100;

/** Sends requests on bare sockets that are kept open, so that the load takes little of the machine. */
class Load {
  readonly #url: URL;
  readonly #authorization: string;
  readonly #bytes: string;
  readonly #idle: Socket[] = [];

  constructor(url: string, token: string) {
    this.#url = new URL(url);
    this.#authorization = `authorization: Bearer ${token}`;
    const body = JSON.stringify({ model: "open", stream: true, messages: [{ role: "user", content: "What now?" }] });
    this.#bytes = [
      "POST /v1/chat/completions HTTP/1.1",
      "host: localhost",
      this.#authorization,
      "content-type: application/json",
      `content-length: ${body.length}`,
      "",
      body,
    ].join("\r\n");
  }

  /** Opens connections, with a request on each that holds no credits: the service keeps few without a caller. */
  async open(count: number): Promise<void> {
    for (let opened = 0; opened < count; opened += OPENED_AT_ONCE) {
      const sockets = Array.from({ length: Math.min(OPENED_AT_ONCE, count - opened) }, () => this.#connect());
      const answered = sockets.map(async (socket) => {
        socket.write(`GET /v1/usage HTTP/1.1\r\nhost: localhost\r\n${this.#authorization}\r\n\r\n`);
        await once(socket, "data", { signal: AbortSignal.timeout(LOST_MS) });
      });
      await Promise.all(answered);
      this.#idle.push(...sockets);
    }
  }

  #connect(): Socket {
    return connect(Number(this.#url.port), this.#url.hostname);
  }

  /** Resolves with the status, or 0 for an answer that broke off. */
  ask(): Promise<number> {
    let socket = this.#idle.pop() ?? this.#connect();
    while (socket.destroyed) socket = this.#idle.pop() ?? this.#connect();
    return new Promise((resolve) => {
      let status: number | undefined;
      const settle = (result: number) => {
        socket.removeAllListeners().on("error", () => undefined);
        socket.setTimeout(0);
        if (result === 0) socket.destroy();
        else this.#idle.push(socket);
        resolve(result);
      };
      socket.on("data", (data) => {
        const text = data.toString("latin1");
        status ??= Number(text.slice(9, 12));
        if (status !== 200) settle(status);
        else if (text.endsWith("0\r\n\r\n")) settle(text.includes("[DONE]") ? 200 : 0);
      });
      socket.on("error", () => settle(0)).on("close", () => settle(0));
      socket.setTimeout(LOST_MS, () => settle(0));
      socket.write(this.#bytes);
    });
  }

  end(): void {
    for (const socket of this.#idle.splice(0)) socket.destroy();
  }
}

async function play(load: Load, health: Peer, rate: number): Promise<Round> {
  const round: Round = { sent: 0, goodput: 0, refused: 0, late: 0, broken: 0, waits: [], health: "" };
  await load.open(Number(values.connections));
  await health.ask();
  const running: Promise<void>[] = [];
  let counted = 0;
  const ask = async () => {
    const askedMs = performance.now();
    const status = await load.ask();
    const endedMs = performance.now();
    const waitMs = endedMs - askedMs;
    if (status === 503) round.refused += 1;
    else if (status !== 200) round.broken += 1;
    else if (waitMs > IN_TIME_MS) round.late += 1;
    else {
      round.waits.push(waitMs);
      const passedMs = endedMs - begunMs;
      if (passedMs > seconds * 500 && passedMs <= seconds * 1_000) counted += 1;
    }
  };
  const begunMs = performance.now();
  for (let sent = 0; performance.now() - begunMs < seconds * 1_000; await sleep(TICK_MS)) {
    for (const due = ((performance.now() - begunMs) / 1_000) * rate; sent < due; sent += 1) running.push(ask());
  }
  const waits = JSON.parse(await health.ask()) as number[];
  await Promise.all(running);
  load.end();
  return {
    ...round,
    sent: running.length / seconds,
    goodput: counted / (seconds / 2),
    health: percentile(waits, 0.99),
  };
}

function print({ sent, goodput, refused, late, broken, waits, health }: Round): void {
  const cells = [
    Math.round(sent),
    goodput.toFixed(1),
    refused,
    late,
    broken,
    percentile(waits, 0.5),
    percentile(waits, 0.99),
  ];
  console.log(`| ${[...cells, health].join(" | ")} |`);
}

const probe = values.connections === "0" ? "probes" : "health";
await using open = await startOpenService("answers", String(UPSTREAM_EVERY_MS), { eventLoopDelayMs: limitMs, probe });
const load = new Load(open.service.url, open.token);
await play(load, open.health, Number(values.first));
console.log("| sent a second | complete in time | refused | late | broken | p50 ms | p99 ms | /healthz p99 ms |");
console.log("|--:|--:|--:|--:|--:|--:|--:|--:|");
let peak: Round | undefined;
for (let rate = Number(values.peak ?? values.first); ; rate *= GROWTH) {
  const round = await play(load, open.health, rate);
  print(round);
  if (peak === undefined || round.goodput > peak.goodput) peak = round;
  if (values.peak !== undefined || round.goodput < rate * 0.8) break;
}
const overloaded = await play(load, open.health, peak.goodput * OVERLOAD);
print(overloaded);
console.log(
  `\nGoodput at three times the peak: ${Math.round((overloaded.goodput / peak.goodput) * 100)} % of the peak's.`,
);
