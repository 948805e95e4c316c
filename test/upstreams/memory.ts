import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServiceProcess } from "../support/service.ts";

/**
 * Code that a service runs first: it prints its memory without garbage whenever it receives SIGUSR2, and the most that
 * it was between one SIGWINCH and the next, as far as it looked: it looks for a tenth of the time.
 */
const HOOK = `
import v8 from "node:v8";
import vm from "node:vm";
v8.setFlagsFromString("--expose-gc");
// Compiled code that was not run for some collections would be dropped between two measurements.
v8.setFlagsFromString("--no-flush-bytecode");
const collect = vm.runInNewContext("gc");
function memory() {
  // What the first one finds has been given back when the second one begins.
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
let most;
function watch() {
  if (most === undefined) return;
  const beganAt = performance.now();
  most = Math.max(most, memory());
  setTimeout(watch, 9 * (performance.now() - beganAt));
}
process.on("SIGWINCH", () => {
  process.stderr.write("MOST " + (most ?? memory()) + "\\n");
  most = most === undefined ? 0 : undefined;
  watch();
});
process.on("SIGUSR2", async () => {
  let least = Number.POSITIVE_INFINITY;
  // Buffers are given back by a thread that may have to wait for its turn.
  for (let turn = 0; turn < 10; turn += 1) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const { heapUsed, external } = process.memoryUsage();
    if (heapUsed + external < 0.99 * least) turn = 0;
    least = Math.min(least, heapUsed + external);
  }
  process.stderr.write("MEMORY " + least + "\\n");
});`;
/** Left to itself, the heap's space for new objects alone grows by up to 48 MiB before the collector looks at it. */
const SMALL_NEW_SPACE = "--max-semi-space-size=4";
export const TELLS_ITS_MEMORY = {
  NODE_OPTIONS: `${SMALL_NEW_SPACE} --import "data:text/javascript,${encodeURIComponent(HOOK)}"`,
};

/** Bytes on the heap and outside it, as the service prints them after a signal. */
async function toldBytes({ child, output }: ServiceProcess, signal: "SIGUSR2" | "SIGWINCH"): Promise<number> {
  const before = output().length;
  child.kill(signal);
  for (;;) {
    const found = /^(?:MEMORY|MOST) (\d+)\n/m.exec(output().slice(before));
    if (found !== null) return Number(found[1]);
    await sleep(10);
  }
}

/**
 * Measures the bytes that a service keeps of each answer that was begun and is not read, once its upstreams have sent all
 * that they can: what it has more than before and than after, whichever is less, because memory that serves other purposes
 * may grow or shrink meanwhile. The service should have answered the same before: what its first answers need stays.
 */
export async function keptBytes(
  service: ServiceProcess,
  begin: (() => Promise<Response>)[],
  sentBytes: () => number,
): Promise<number> {
  const before = await toldBytes(service, "SIGUSR2");
  const answers = await Promise.all(begin.map((one) => one()));
  // The buffers of all sockets fill up; then nothing moves any more.
  const rest = async () => {
    for (let last = -1; last !== sentBytes(); await sleep(500)) last = sentBytes();
  };
  await rest();
  const withThem = await toldBytes(service, "SIGUSR2");
  // On a busy machine, clients that read nothing for a minute are disconnected already.
  await Promise.allSettled(answers.map(({ body }) => body?.cancel()));
  await rest();
  const after = await toldBytes(service, "SIGUSR2");
  return (withThem - Math.max(before, after)) / begin.length;
}

/** The most that a service grows by while answers are read as they come, in bytes. */
export interface Growth {
  /** On the heap and beside it, without garbage. */
  kept: number;
  /** With garbage, of which a busy machine leaves more; of its process (proc(5), VmRSS). */
  resident: number;
}

export async function growthBytes(service: ServiceProcess, begin: (() => Promise<Response>)[]): Promise<Growth> {
  const keptBefore = await toldBytes(service, "SIGWINCH");
  const before = residentBytes(service);
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, residentBytes(service));
  }, 5);
  const read = async (one: () => Promise<Response>) => {
    const { body } = await one();
    if (body !== null) for await (const _bytes of body);
  };
  await Promise.all(begin.map(read));
  clearInterval(sampling);
  return { kept: (await toldBytes(service, "SIGWINCH")) - keptBefore, resident: most - before };
}

function residentBytes({ child }: ServiceProcess): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return Number(/VmRSS\D+(\d+) kB/.exec(status)?.[1]) * 1024;
}
