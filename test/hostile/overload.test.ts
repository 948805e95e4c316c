import { once } from "node:events";
import { connect } from "node:net";
import { afterEach, expect, test } from "vitest";
import { ApiError } from "../../src/errors.ts";
import type { Server } from "../../src/http/server.ts";
import { keepLog } from "../support/log.ts";
import { startTestServer } from "../support/server.ts";
import { send } from "../support/service.ts";
import { closeOf, dial } from "./raw-http.ts";

let server: Server;
afterEach(() => server.close({ delayMs: 0, drainMs: 100 }));

const refusal = () => new ApiError("overloaded", undefined, { headers: { "retry-after": "2" } });

test("An overloaded service refuses new work before it reads a token or a body, and answers everything else.", async () => {
  let authentications = 0;
  const authenticate = () => {
    authentications += 1;
    return Promise.reject(new ApiError("invalid_token"));
  };
  const started = await startTestServer({ overload: { refusal }, authenticator: { authenticate } });
  server = started.server;
  for (const path of ["chat/completions", "responses", "messages", "messages/count_tokens", "embeddings"]) {
    const answer = await send(started, `/v1/${path}`, "any", "not JSON");
    expect(answer.headers.get("retry-after")).toBe("2");
    const isMessages = path.startsWith("messages");
    expect(answer.status).toBe(isMessages ? 529 : 503);
    const { error } = (await answer.json()) as { error: { type: string } };
    expect(error.type).toBe(isMessages ? "overloaded_error" : "server_error");
  }
  expect(authentications).toBe(0);
  expect((await send(started, "/healthz", null)).status).toBe(200);
  expect((await send(started, "/readyz", null)).status).toBe(200);
  expect((await send(started, "/v1/models", "any")).status).toBe(401);
  expect((await send(started, "/v1/usage", "any")).status).toBe(401);
  expect((await send(started, "/v1/responses/resp_1", "any")).status).toBe(401);
  expect(authentications).toBe(3);
});

test("A connection above the limit is closed at once, and one that closes makes room.", async () => {
  const log = keepLog();
  const started = await startTestServer({ maxConnections: 2, log });
  server = started.server;
  const { port } = new URL(started.url);
  const open = await Promise.all(
    [1, 2].map(async () => {
      const socket = connect(Number(port), "127.0.0.1");
      await once(socket, "connect");
      return socket;
    }),
  );
  await expect.poll(() => connectionsOf(server)).toBe(2);
  await closeOf(dial(started.url));
  expect(log.lines).toMatchObject([{ level: "warn", fields: { connectionsMax: 2, closed: 1 } }]);
  open[0]?.destroy();
  await expect.poll(() => connectionsOf(server)).toBe(1);
  expect((await send(started, "/healthz", null)).status).toBe(200);
  open[1]?.destroy();
});

function connectionsOf({ instance }: Server): Promise<number> {
  return new Promise((resolve) => instance.server.getConnections((_error, count) => resolve(count)));
}
