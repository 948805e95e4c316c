import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { makeToken } from "../../src/admin/token.ts";
import { ApiError } from "../../src/errors.ts";
import type { Gateway } from "../../src/gateway/gateway.ts";
import type { Server } from "../../src/http/server.ts";
import { keepLog } from "../support/log.ts";
import { PRINCIPAL, startTestServer } from "../support/server.ts";
import { send } from "../support/service.ts";
import { closeOf, dial } from "./raw-http.ts";

let server: Server;
afterEach(() => server.close({ delayMs: 0, drainMs: 100 }));

const limitSettings = {
  requestsPerMinute: 1_000,
  tokensPerMinute: 1_000,
  concurrentRequests: 1_000,
  newValuesPerMinute: 10,
};
const gateway = { limitSettings } as Gateway;
/** Organization of the next request. */
let owner = "";

const overload = {
  refusal: () => new ApiError("overloaded", undefined, { headers: { "retry-after": "2" } }),
  countConnection: () => undefined,
};

test("An overloaded service refuses new work before it reads a body, and answers everything else.", async () => {
  const authenticate = async () => ({ ...PRINCIPAL, organizationId: "org_a" });
  const started = await startTestServer({ overload, authenticator: { authenticate }, gateway });
  server = started.server;
  // An organization without a running request has its share.
  const running = dial(started.url);
  running.write(
    `POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: any\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{`,
  );
  await expect.poll(() => send(started, "/v1/messages", "any", "not JSON").then(({ status }) => status)).toBe(529);
  for (const path of ["chat/completions", "responses", "messages", "messages/count_tokens", "embeddings"]) {
    const answer = await send(started, `/v1/${path}`, "any", "not JSON");
    expect(answer.headers.get("retry-after")).toBe("2");
    const isMessages = path.startsWith("messages");
    expect(answer.status).toBe(isMessages ? 529 : 503);
    const { error } = (await answer.json()) as { error: { type: string } };
    expect(error.type).toBe(isMessages ? "overloaded_error" : "server_error");
  }
  expect((await send(started, "/healthz", null)).status).toBe(200);
  expect((await send(started, "/readyz", null)).status).toBe(200);
  expect((await send(started, "/v1/chat/completions", null, "not JSON")).status).toBe(401);
  expect((await send(started, "/v1/models", "any")).status).toBe(200);
  expect((await send(started, "/v1/models/none", "any")).status).toBe(404);
  running.destroy();
});

test("An overloaded service takes a request of each organization that has none running, and refuses further ones.", async () => {
  const authenticator = {
    authenticate: async () => ({ ...PRINCIPAL, organizationId: owner }),
  };
  const started = await startTestServer({ overload, authenticator, gateway });
  server = started.server;
  const { token } = makeToken(randomBytes);
  const ask = async (organization: string) => {
    owner = organization;
    const answer = await send(started, "/v1/chat/completions", token, "not JSON");
    return ((await answer.json()) as { error: { code: string } }).error.code;
  };
  owner = "org_a";
  const running = dial(started.url);
  const credential = `Authorization: Bearer ${token}\r\nContent-Type: application/json`;
  running.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n${credential}\r\nContent-Length: 9\r\n\r\n{`);
  await expect.poll(() => ask("org_a")).toBe("overloaded");
  expect(await ask("org_b")).toBe("invalid_json");
  expect(await ask("org_b")).toBe("invalid_json");
  expect(await ask("org_a")).toBe("overloaded");
  running.destroy();
  await expect.poll(() => ask("org_a")).toBe("invalid_json");
});

test("A connection above the limit is closed at once, and one that closes makes room.", async () => {
  const log = keepLog();
  const { started, open } = await openAll(OPEN, log);
  await closeOf(dial(started.url));
  expect(log.lines).toMatchObject([{ level: "warn", fields: { connectionsMax: OPEN } }]);
  open[0]?.destroy();
  await expect
    .poll(() =>
      send(started, "/healthz", null).then(
        ({ status }) => status,
        () => 0,
      ),
    )
    .toBe(200);
  for (const socket of open) socket.destroy();
});

test("An organization that has three quarters of the connections is refused on another one, and others are not.", async () => {
  const { started, open } = await openAll((OPEN * 3) / 4, keepLog(), "org_a");
  const refused = dial(started.url);
  refused.write(MODELS);
  const [answer] = await once(refused, "data");
  expect(answer.toString()).toMatch(/^HTTP\/1.1 429 /);
  await closeOf(refused);
  owner = "org_b";
  expect((await send(started, "/v1/models", "any")).status).toBe(200);
  for (const socket of open) socket.destroy();
});

const MODELS = "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer any\r\n\r\n";

/** Opens connections with a request each: of an organization, or of two that take turns. */
async function openAll(count: number, log: ReturnType<typeof keepLog>, only?: string) {
  const authenticate = async () => ({ ...PRINCIPAL, organizationId: owner });
  const started = await startTestServer({
    maxConnections: OPEN,
    log,
    authenticator: { authenticate },
    gateway,
  });
  server = started.server;
  const open: Socket[] = [];
  for (let index = 0; index < count; index += 1) {
    owner = only ?? (index % 2 === 0 ? "org_a" : "org_b");
    const socket = dial(started.url);
    socket.write(MODELS);
    const [answer] = await once(socket, "data");
    expect(answer.toString()).toMatch(/^HTTP\/1.1 200 OK/);
    open.push(socket);
  }
  return { started, open };
}

const OPEN = 20;
