import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import * as undici from "undici";
import { expect, test } from "vitest";
import { Agent, errors, loadEnvHttpProxyAgent, Pool, request } from "./undici.ts";

test("the parts of undici are those of its index", () => {
  expect(Pool).toBe(undici.Pool);
  expect(Agent).toBe(undici.Agent);
  expect(errors).toBe(undici.errors);
  expect(loadEnvHttpProxyAgent()).toBe(undici.EnvHttpProxyAgent);
});

test("a request reaches its path with its query, and its answer can be read", async () => {
  const server = createServer((incoming, response) => void response.end(`${incoming.method} ${incoming.url}`));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const agent = new Agent();
  try {
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/models?page=2`);
    const answer = await request(agent, url, { method: "POST", body: "{}", reset: true });
    expect(answer.statusCode).toBe(200);
    expect(await answer.body.text()).toBe("POST /models?page=2");
  } finally {
    await agent.destroy();
    server.close();
  }
});
