import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { dial } from "../raw-http.ts";
import type { Attack, Target } from "./attack.ts";

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
];
