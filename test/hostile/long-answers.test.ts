import { type IncomingMessage, request as openRequest } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService, usageOf } from "../support/service.ts";
import { startUpstream, type Upstream } from "../support/upstream.ts";

const PATH = "/v1/images/generations";
/** More than the kernel keeps of a connection that is not read. */
const IMAGE_CHARACTERS = 30 * 1024 * 1024;
/** Long answers of an organization at once: 128 MiB, of which one that is read takes 64 MiB. */
const AT_ONCE = 3;
const SENT = 6;

let upstream: Upstream;
let service: RunningService;
/** Answers that the service has taken. */
let taken = 0;

beforeAll(async () => {
  upstream = await startUpstream();
  const text = JSON.stringify({ data: [{ b64_json: "A".repeat(IMAGE_CHARACTERS) }] });
  upstream.behave("long", ({ response }) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.write(text, () => {
      taken += 1;
      response.end();
    });
  });
  const model = { id: "long", category: "image", price: { input: 0, perImage: 1 } };
  service = await startService({
    config: {
      providers: [upstream.provider],
      models: [{ ...model, routes: [{ provider: "up", model: "long" }] }],
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

/** Sends a request, and resolves with its response, of which nothing is read yet. */
function sendUnread(token: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    openRequest(`${service.url}${PATH}`, { method: "POST", headers, agent: false }, resolve)
      .on("error", reject)
      .end(JSON.stringify({ model: "long", prompt: "a cat" }));
  });
}

async function readAll(response: IncomingMessage): Promise<number> {
  let bytes = 0;
  for await (const chunk of response) bytes += (chunk as Buffer).length;
  return bytes;
}

test("Long answers that a customer's clients do not read stop its further ones, and nobody else's.", async () => {
  const noisy = await makeOrganization(service, "100");
  const responses = Array.from({ length: SENT }, () => sendUnread(noisy.token));
  await expect.poll(() => taken, { interval: 20 }).toBe(AT_ONCE);

  const quiet = await makeOrganization(service, "100");
  const answer = await send(service, PATH, quiet.token, { model: "long", prompt: "a dog" });
  expect(answer.status).toBe(200);
  expect((await answer.text()).length).toBeGreaterThan(IMAGE_CHARACTERS);
  expect(taken).toBe(AT_ONCE + 1);

  const sizes = await Promise.all(responses.map(async (response) => readAll(await response)));
  for (const bytes of sizes) expect(bytes).toBeGreaterThan(IMAGE_CHARACTERS);
  const { creditsAvailable, creditsHeld } = await usageOf(service, noisy.token);
  expect({ creditsAvailable, creditsHeld }).toEqual({ creditsAvailable: 100 - SENT, creditsHeld: 0 });
});
