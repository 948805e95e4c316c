/**
 * `npm run bench:streams`: opens many streams on a service, each with a connection to an upstream that sends one event a
 * second, and prints how much memory a stream takes, and how long `/healthz` takes meanwhile. Where other processes take
 * the cores, `/healthz` waits for one like everything else, so that wait is printed too. Options: --streams, --every
 * milliseconds between two events of a stream, --seconds of the measurement, --sandbox for streams of the sandbox, which
 * need half as many open files.
 */
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { ServiceProcess } from "../test/support/service.ts";
import { type OpenService, startOpenService } from "./open-service.ts";
import { percentile } from "./peer.ts";

const OPENED_AT_ONCE = 100;
const REST_MS = 5_000;

const { values } = parseArgs({
  options: {
    streams: { type: "string", default: "10000" },
    every: { type: "string", default: "1000" },
    seconds: { type: "string", default: "30" },
    sandbox: { type: "boolean", default: false },
  },
});
const streams = Number(values.streams);

/** A client of one stream, on a bare socket, so that 10,000 of them take little of the machine. */
interface Stream {
  socket: Socket;
  /** Status of the response; 0 where the connection was closed without one. */
  status: number;
  bytes: number;
  isClosed: boolean;
}

function openStream(url: string, head: string, body: string): Promise<Stream> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const stream: Stream = { socket, status: 0, bytes: 0, isClosed: false };
  socket.write(`${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return new Promise((resolve) => {
    socket.on("data", (data) => {
      if (stream.bytes === 0) stream.status = Number(data.toString("latin1", 9, 12));
      stream.bytes += data.length;
      resolve(stream);
    });
    socket.on("error", () => undefined);
    socket.on("close", () => {
      stream.isClosed = true;
      resolve(stream);
    });
  });
}

async function openStreams(count: number, open: () => Promise<Stream>): Promise<Stream[]> {
  const opened: Stream[] = [];
  for (let at = 0; at < count; at += OPENED_AT_ONCE) {
    opened.push(...(await Promise.all(Array.from({ length: Math.min(OPENED_AT_ONCE, count - at) }, open))));
  }
  return opened;
}

function residentKibibytes({ child }: ServiceProcess): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return Number(/^VmRSS:[ \t]*(\d+)/m.exec(status)?.[1]);
}

/** Time of the main thread on a core, and waiting for one, in milliseconds (schedstat of proc(5)). */
function loopMs({ child }: ServiceProcess): { ranMs: number; waitedMs: number } {
  const fields = readFileSync(`/proc/${child.pid}/task/${child.pid}/schedstat`, "utf8").split(" ");
  return { ranMs: Number(fields[0]) / 1e6, waitedMs: Number(fields[1]) / 1e6 };
}

function row(phase: string, waits: readonly number[], further: string): void {
  console.log(
    `| ${phase} | ${percentile(waits, 0.5)} | ${percentile(waits, 0.99)} | ${percentile(waits, 1)} | ${further} |`,
  );
}

async function measure({ service, token, health }: OpenService): Promise<void> {
  const model = values.sandbox ? "sandbox/fault" : "open";
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    "host: localhost",
    `authorization: Bearer ${token}`,
    "content-type: application/json",
  ].join("\r\n");
  const body = JSON.stringify({
    model,
    stream: true,
    messages: [
      { role: "system", content: "You are the help desk of a toll road. Answer in two sentences, friendly and exact." },
      { role: "user", content: "silence after 2 tokens 3600s" },
    ],
  });
  const open = () => openStream(service.url, head, body);
  await sleep(REST_MS);
  const idleKibibytes = residentKibibytes(service);
  await health.ask();
  console.log("| phase | /healthz p50 ms | p99 ms | longest ms | |\n|---|--:|--:|--:|---|");
  const openedMs = performance.now();
  const opened = await openStreams(streams, open);
  const tookMs = performance.now() - openedMs;
  const waits = JSON.parse(await health.ask()) as number[];
  row("opening", waits, `${Math.round((streams / tookMs) * 1_000)} streams a second`);
  await sleep(REST_MS);
  await health.ask();
  const [loopBefore, bytesBefore] = [loopMs(service), opened.reduce((sum, { bytes }) => sum + bytes, 0)];
  const resident: number[] = [];
  const until = performance.now() + Number(values.seconds) * 1_000;
  while (performance.now() < until) {
    await sleep(1_000);
    resident.push(residentKibibytes(service));
  }
  const seconds = Number(values.seconds);
  const bytes = opened.reduce((sum, one) => sum + one.bytes, 0) - bytesBefore;
  const loop = loopMs(service);
  const share = (ms: number) => `${Math.round(ms / (seconds * 10))} %`;
  const times = `${share(loop.ranMs - loopBefore.ranMs)} of a core, waited for one ${share(loop.waitedMs - loopBefore.waitedMs)}`;
  row("open", JSON.parse(await health.ask()), `${times}, ${Math.round(bytes / seconds / 1024)} KiB/s`);
  const served = opened.filter(({ status, isClosed }) => status === 200 && !isClosed).length;
  const each = (kibibytes: number) => ((kibibytes - idleKibibytes) / served).toFixed(1);
  const sorted = resident.toSorted((a, b) => a - b);
  console.log(
    `\n${served} of ${streams} streams are open. Idle: ${Math.round(idleKibibytes / 1024)} MiB. KiB a stream above idle: ` +
      `median ${each(sorted[sorted.length >> 1] ?? Number.NaN)}, ${each(sorted[0] ?? Number.NaN)} to ${each(sorted.at(-1) ?? Number.NaN)}.`,
  );
  for (const { socket } of opened) socket.destroy();
}

await using open = await startOpenService("upstream", values.every);
await measure(open);
