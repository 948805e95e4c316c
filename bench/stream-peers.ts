/**
 * The other processes of `bench/streams.ts` and `bench/overload.ts`. `upstream EVERY_MS` answers each request with a stream
 * that sends one event in this interval and never ends; `answers EVERY_MS` with one of twenty such intervals, each with five
 * events. Both print their port. `health URL` asks `/healthz` every 20 ms on kept connections, and `probes URL`
 * on a new one each time; they print the waits in milliseconds for each line that they read, also of those that still wait.
 */
import { Agent, createServer, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

/** The interval is divided into this many parts, and the streams are spread over them. */
const PARTS = 25;
const ASK_EVERY_MS = 20;
const WRITES_AN_ANSWER = 20;
const EVENTS_A_WRITE = 5;

function event(delta: object, finish: string | null = null): string {
  const head = {
    id: "chatcmpl-open",
    object: "chat.completion.chunk",
    created: 1_790_000_000,
    model: "upstream-model",
  };
  return `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }] })}\n\n`;
}

interface Written {
  startedMs: number;
  writes: number;
}

/**
 * `writes` is the number of writes of an answer. What is due is reckoned by the time since its beginning, and a write has all of
 * it: where this process waits for a core, an answer takes no longer, and less work.
 */
function serveUpstream(everyMs: number, writes: number, eventsAWrite: number): void {
  const parts = Array.from({ length: PARTS }, () => new Map<ServerResponse, Written>());
  const first = event({ role: "assistant", content: "" });
  const piece = event({ content: "some words " }).repeat(eventsAWrite);
  const last = `${event({}, "stop")}data: [DONE]\n\n`;
  let given = 0;
  const server = createServer((incoming, response) => {
    incoming.resume();
    const part = parts[given % PARTS];
    given += 1;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(first);
    part?.set(response, { startedMs: performance.now(), writes: 0 });
    response.on("close", () => part?.delete(response));
  });
  let turn = 0;
  setInterval(() => {
    const part = parts[turn % PARTS];
    const nowMs = performance.now();
    for (const [response, written] of part ?? []) {
      const due = Math.min(writes, Math.round((nowMs - written.startedMs) / everyMs)) - written.writes;
      if (due <= 0) continue;
      response.write(piece.repeat(due));
      written.writes += due;
      if (written.writes < writes) continue;
      response.end(last);
      part?.delete(response);
    }
    turn += 1;
  }, everyMs / PARTS);
  server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => {
    console.log((server.address() as AddressInfo).port);
  });
}

function watchHealth(url: string, keepAlive: boolean): void {
  const agent = new Agent({ keepAlive });
  let waits: number[] = [];
  const waiting = new Set<number>();
  setInterval(() => {
    const askedMs = performance.now();
    waiting.add(askedMs);
    const asked = request(`${url}/healthz`, { agent }, (answer) => {
      answer.resume().on("end", () => waits.push(performance.now() - askedMs));
    });
    asked.on("error", () => waits.push(Number.POSITIVE_INFINITY)).on("close", () => waiting.delete(askedMs));
    asked.end();
  }, ASK_EVERY_MS);
  createInterface(process.stdin)
    .on("line", () => {
      const nowMs = performance.now();
      console.log(JSON.stringify([...waits, ...Array.from(waiting, (askedMs) => nowMs - askedMs)]));
      waits = [];
    })
    .on("close", () => process.exit());
}

const [role, argument = ""] = process.argv.slice(2);
if (role === "upstream") serveUpstream(Number(argument), Number.POSITIVE_INFINITY, 1);
else if (role === "answers") serveUpstream(Number(argument), WRITES_AN_ANSWER, EVENTS_A_WRITE);
else watchHealth(argument, role === "health");
