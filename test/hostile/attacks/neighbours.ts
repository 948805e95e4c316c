import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, request as sendRequest } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { type Attack, firstRouteOf, makeCustomer, operate, required, type Target } from "./attack.ts";
import { NOISES, type Noise, UNLIMITED } from "./noises.ts";

/** Answer to one request of the victim. */
export interface Served {
  status: number;
  /** Credits; undefined for a refusal. */
  charge: string | undefined;
  ms: number;
}

/** A customer, and the answers that it got while it was alone. */
export interface Victim {
  token: string;
  quiet: Served[];
}

/** Answers to the victim during a noise, and to the noise by their status. */
export interface Trial {
  noisy: Served[];
  statuses: ReadonlyMap<number, number>;
}

const ASK_EVERY_MS = 200;
/** Requests of the victim in the short form of a trial, one of every kind: while they last, the noise takes the whole machine. */
const REQUESTS = 4;
const TEXTS = 7;
/** Requests of the victim until they repeat: each text is sent as each kind. */
export const REQUESTS_THAT_DIFFER = REQUESTS * TEXTS;
const REACHED_WITHIN_MS = 120_000;
/** A connection for each request: the limits of connections are shared too. */
const agent = new Agent({ keepAlive: false });

/** Makes a customer, and lets it send what it will send during a noise. */
export async function makeVictim(target: Target, noise: Noise, requests = REQUESTS): Promise<Victim> {
  const { token } = await makeCustomer(target, UNLIMITED);
  const quiet = await ask(target, token, noise, requests);
  assertServed(quiet, "without the noise");
  return { token, quiet };
}

/**
 * Lets one customer do its worst while another sends five requests a second, as many as without the noise, or all that differ
 * again and again. Rejects if one of them is refused, or costs another amount than without the noise.
 */
export async function playNoise(
  target: Target,
  noise: Noise,
  { token, quiet }: Victim,
  requests = quiet.length,
): Promise<Trial> {
  const worker = new Worker(new URL("./noise-worker.ts", import.meta.url), {
    workerData: { target, does: noise.does, customer: await makeCustomer(target, noise.terms ?? UNLIMITED) },
  });
  try {
    await once(worker, "message", { signal: AbortSignal.timeout(REACHED_WITHIN_MS) }).catch((cause: unknown) => {
      throw new Error(`No request of the noise was answered ${noise.reaches}.`, { cause });
    });
    const noisy = await ask(target, token, noise, requests);
    worker.postMessage("stop");
    const [statuses] = (await once(worker, "message")) as [ReadonlyMap<number, number>];
    assertServed(noisy, "during the noise");
    const charged = noisy.map(({ charge }) => charge);
    const expected = noisy.map((_served, index) => quiet[index % quiet.length]?.charge);
    assert.deepEqual(charged, expected, "The noise changed what another customer is charged.");
    return { noisy, statuses };
  } finally {
    await worker.terminate();
    const { route } = await firstRouteOf(target, required(target, "fragileModel"));
    await operate(target, "POST", "/routes/resume", { route });
  }
}

function assertServed(served: readonly Served[], when: string): void {
  const refused = served.filter(({ status, charge }) => status !== 200 || charge === undefined);
  const statuses = refused.map(({ status }) => status).join(", ");
  assert.equal(refused.length, 0, `${refused.length} of ${served.length} requests were refused ${when}: ${statuses}.`);
}

/** Sends the requests of the victim at its rate. */
async function ask(target: Target, token: string, noise: Noise, requests: number): Promise<Served[]> {
  const asked: Promise<Served>[] = [];
  for (let index = 0; index < requests; index += 1) {
    asked.push(askOne(target, token, noise, index));
    await sleep(ASK_EVERY_MS);
  }
  return Promise.all(asked);
}

/** Sends one request. Its kind and its text follow from its index, so that both runs have the same ones. */
function askOne(target: Target, token: string, { victim }: Noise, index: number): Promise<Served> {
  const model = required(target, victim?.model ?? "fragileModel");
  const content = victim?.content ?? `Tell me ${"more ".repeat(1 + (index % TEXTS))}`;
  const chat = { model, messages: [{ role: "user", content }], max_tokens: 64 };
  const kinds = [
    { path: "/v1/chat/completions", body: chat },
    // Its provider reports no usage: the service counts it.
    { path: "/v1/chat/completions", body: { ...chat, stream: true } },
    { path: "/v1/messages", body: chat },
    { path: "/v1/embeddings", body: { model: required(target, "embeddingModel"), input: content } },
  ];
  const { path, body } = kinds[index % kinds.length] as (typeof kinds)[number];
  return exchange(`${target.url}${path}`, token, JSON.stringify(body));
}

function exchange(url: string, token: string, body: string): Promise<Served> {
  const startedAt = performance.now();
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
  return new Promise((resolve) => {
    const fail = () => resolve({ status: 0, charge: undefined, ms: performance.now() - startedAt });
    const outgoing = sendRequest(url, { method: "POST", agent, headers }, async (incoming) => {
      try {
        const text = Buffer.concat(await incoming.toArray()).toString();
        const charge = incoming.headers["x-credits-charged"] ?? /"cost":([\d.e-]+)/.exec(text)?.[1];
        resolve({ status: incoming.statusCode ?? 0, charge: charge as string, ms: performance.now() - startedAt });
      } catch {
        fail();
      }
    });
    outgoing.on("error", fail).end(body);
  });
}

/** One customer against another, once for each resource that they share. */
export const neighbourAttacks: readonly Attack[] = NOISES.map((noise) => ({
  title: `A customer that ${noise.does} changes neither the answers nor the charges of another.`,
  needs: "token",
  alsoNeeds: ["adminToken", "fragileModel", "pairModel", "longModel", "embeddingModel"],
  play: async (target) => {
    await playNoise(target, noise, await makeVictim(target, noise));
  },
}));
