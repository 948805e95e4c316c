import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Random } from "../../crash/random.ts";
import { answersIn, closeOf, dial, exchangeRaw } from "../raw-http.ts";
import type { Target } from "./attack.ts";

const AT_ONCE = 20;
/** The service answers or closes within this time; the longest of its own limits for a broken connection is 10 s. */
const OPEN_MS_MAX = 60_000;

const HEALTH = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
const CONNECT = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
const BODY = '{"model":"sandbox/echo","messages":[{"role":"user","content":"hello"}],"stream":true}';

/** Requests of which each connection sends a part, up to a chosen byte. */
function conversations({ token = "none" }: Target): [string, ...string[]] {
  const head = (...fields: string[]) =>
    `${["POST /v1/chat/completions HTTP/1.1", "Host: x", `Authorization: Bearer ${token}`, "Content-Type: application/json", ...fields].join("\r\n")}\r\n\r\n`;
  const post = `${head(`Content-Length: ${BODY.length}`)}${BODY}`;
  const upgrade = (protocol: string) =>
    `GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n`;
  return [
    CONNECT,
    `${CONNECT}${"x".repeat(200)}`,
    `${HEALTH}${CONNECT}${HEALTH}`,
    `${post}${CONNECT}`,
    post,
    `${post}${post}${HEALTH}`,
    `${head("Transfer-Encoding: chunked")}${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`,
    `${head("Transfer-Encoding: chunked")}zz\r\n${BODY}`,
    `${head(`Content-Length: ${BODY.length}`, "Expect: 100-continue")}${BODY}`,
    `${head(`Content-Length: ${BODY.length}`, "Expect: more")}${BODY}`,
    upgrade("websocket"),
    `${upgrade("h2c")}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`,
    `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${"\0".repeat(40)}`,
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    `${HEALTH}BREW / HTTP/1.1\r\nHost: x\r\n\r\n`,
    "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(8),
    `OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\nHEAD /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
  ];
}

interface Fuzzing {
  connections: number;
  seed: number;
}

/**
 * Opens connections that each end within a conversation: with a reset, a half-close or a close, at once or after a short
 * time. Rejects with the seed if the service leaves one open, no longer answers, or sends a wrong response on another
 * connection.
 */
export async function fuzzConnections(target: Target, { connections, seed }: Fuzzing): Promise<void> {
  const random = new Random(seed);
  const texts = conversations(target);
  for (let opened = 0; opened < connections; opened += AT_ONCE) {
    const batch = Array.from({ length: Math.min(AT_ONCE, connections - opened) }, () => trialOf(random, texts));
    const beside = exchangeRaw(target.url, HEALTH.repeat(3), 3);
    await Promise.all(batch.map((trial) => play(target, trial, seed)));
    const answers = (await beside).map(({ status, body }) => `${status} ${body}`);
    assert.deepEqual(
      answers,
      Array(3).fill('200 {"status":"ok"}'),
      `With seed ${seed}, a connection beside was harmed.`,
    );
  }
}

interface Trial {
  text: string;
  /** Bytes that are sent first, and in total. */
  first: number;
  length: number;
  pauseMs: number;
  end: "reset" | "half-close" | "leave";
}

function trialOf(random: Random, texts: readonly [string, ...string[]]): Trial {
  const text = random.pick(texts);
  const length = random.between(1, text.length);
  return {
    text,
    length,
    first: random.between(1, length),
    pauseMs: random.chance(0.5) ? 0 : random.between(1, 20),
    end: random.pick(["reset", "reset", "half-close", "leave"]),
  };
}

async function play(target: Target, trial: Trial, seed: number): Promise<void> {
  const { text, first, length, pauseMs, end } = trial;
  const socket = dial(target.url);
  const received: Buffer[] = [];
  socket.on("data", (data: Buffer) => received.push(data));
  const closed = closeOf(socket);
  await Promise.race([new Promise((resolve) => socket.once("connect", resolve)), closed]);
  socket.write(text.slice(0, first), "latin1");
  if (pauseMs > 0) await sleep(pauseMs);
  if (socket.writable) socket.write(text.slice(first, length), "latin1");
  if (pauseMs > 0) await sleep(pauseMs);
  if (end === "reset") socket.resetAndDestroy();
  else if (end === "leave") socket.destroy();
  else socket.end();
  const shown = `seed ${seed}, ${end} after ${length} bytes of ${JSON.stringify(text.slice(0, 60))}`;
  assert.ok(await isClosed(socket, closed), `The service left a connection open: ${shown}`);
  for (const { status } of answersIn(Buffer.concat(received))) {
    assert.ok(status < 500, `The service answered ${status}: ${shown}`);
  }
}

async function isClosed(socket: Socket, closed: Promise<unknown>): Promise<boolean> {
  const timer = new AbortController();
  const isOver = await Promise.race([
    closed.then(() => true),
    sleep(OPEN_MS_MAX, false, { signal: timer.signal }).catch(() => false),
  ]);
  timer.abort();
  socket.destroy();
  return isOver;
}
