/**
 * Polls `/healthz` until it receives a message to stop, then reports the longest wait. It runs in its own thread, because
 * the attacks block the event loop of their sender.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";

const ASK_EVERY_MS = 20;

const { url } = workerData as { url: string };
let isOver = false;
let longestMs = 0;
let failures = 0;
parentPort?.once("message", () => {
  isOver = true;
});
parentPort?.postMessage("watching");
while (!isOver) {
  const start = performance.now();
  try {
    const answer = await fetch(`${url}/healthz`);
    await answer.arrayBuffer();
  } catch {
    failures += 1;
  }
  longestMs = Math.max(longestMs, performance.now() - start);
  await sleep(ASK_EVERY_MS);
}
parentPort?.postMessage({ longestMs: Math.round(longestMs), failures });
