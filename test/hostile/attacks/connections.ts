import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { answersIn, dial } from "../raw-http.ts";
import type { Attack, Target } from "./attack.ts";
import { fuzzConnections } from "./fuzz.ts";

const CONNECT = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
const HEALTH = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

/** Sends bytes and resets the connection after a number of milliseconds. */
async function sendAndReset(target: Target, bytes: string, afterMs: number): Promise<void> {
  const socket = dial(target.url);
  await once(socket, "connect");
  socket.write(bytes);
  await sleep(afterMs);
  socket.resetAndDestroy();
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
      await once(socket, "close");
      assert.deepEqual(
        answersIn(Buffer.concat(received)).map(({ status }) => status),
        [400],
      );
    },
  },
  {
    title:
      "Connections that break off at any byte of CONNECT, Upgrade, HTTP/2, chunked and pipelined requests harm nobody.",
    needs: "nothing",
    play: (target) => fuzzConnections(target, { connections: 200, seed: Date.now() % 1_000_000 }),
  },
];
