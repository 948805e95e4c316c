import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { answersIn, closeOf, dial } from "../raw-http.ts";
import { type Attack, authorization, type Target } from "./attack.ts";
import { fuzzConnections } from "./fuzz.ts";

const CONNECT = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
/** More connections than the service keeps open without authentication. */
const ANONYMOUS_CONNECTIONS = 2_200;
const HEALTH = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

/** Sends bytes and resets the connection after a number of milliseconds. */
async function sendAndReset(target: Target, bytes: string, afterMs: number): Promise<void> {
  const socket = dial(target.url);
  await once(socket, "connect");
  socket.write(bytes);
  await sleep(afterMs);
  socket.resetAndDestroy();
}

/** Sends a request on an open connection and waits for its answer, which must be 200. */
async function answerOn(socket: Socket, request: string): Promise<void> {
  const received: Buffer[] = [];
  const collect = (data: Buffer) => received.push(data);
  socket.on("data", collect);
  socket.write(request);
  while (answersIn(Buffer.concat(received)).length === 0) {
    assert.ok(!socket.destroyed, "The connection was closed.");
    await sleep(5);
  }
  socket.off("data", collect);
  assert.equal(answersIn(Buffer.concat(received))[0]?.status, 200);
}

async function assertAlive({ url }: Target): Promise<void> {
  const answer = await fetch(`${url}/healthz`);
  assert.equal(answer.status, 200);
  await answer.arrayBuffer();
}

/** Attacks on the connection itself, below HTTP. */
export const connectionAttacks: readonly Attack[] = [
  {
    title: "A connection that is reset after CONNECT does not end the service.",
    needs: "nothing",
    async play(target) {
      for (const bytes of [CONNECT, `${CONNECT}${"x".repeat(5_000)}`, `${HEALTH}${CONNECT}`, `${CONNECT}${CONNECT}`]) {
        for (const afterMs of [0, 1, 5, 20]) await sendAndReset(target, bytes, afterMs);
      }
      await assertAlive(target);
    },
  },
  {
    title: "A CONNECT is refused, and its connection is closed although the client leaves it open.",
    needs: "nothing",
    async play(target) {
      const socket = dial(target.url);
      const received: Buffer[] = [];
      socket.on("data", (data: Buffer) => received.push(data));
      socket.write(CONNECT);
      await closeOf(socket);
      assert.deepEqual(
        answersIn(Buffer.concat(received)).map(({ status }) => status),
        [400],
      );
    },
  },
  {
    title: "More connections than the service keeps without authentication close the oldest, and no authenticated one.",
    needs: "token",
    async play(target) {
      const { authorization: credential } = authorization(target, "token");
      const models = `GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: ${credential}\r\n\r\n`;
      const sockets = [dial(target.url), dial(target.url)] as const;
      const [authenticated, oldest] = sockets;
      const more: Socket[] = [];
      try {
        await answerOn(authenticated, models);
        await answerOn(oldest, HEALTH);
        const closed = closeOf(oldest);
        for (let opened = 0; opened < ANONYMOUS_CONNECTIONS; opened += 100) {
          const some = Array.from({ length: 100 }, () => dial(target.url));
          more.push(...some);
          await Promise.all(some.map((socket) => once(socket, "connect")));
        }
        await closed;
        await answerOn(authenticated, models);
      } finally {
        for (const socket of [...sockets, ...more]) socket.destroy();
      }
    },
  },
  {
    title:
      "Connections that break off at any byte of CONNECT, Upgrade, HTTP/2, chunked and pipelined requests do no harm.",
    needs: "nothing",
    play: (target) => fuzzConnections(target, { connections: 200, seed: Date.now() % 1_000_000 }),
  },
];
