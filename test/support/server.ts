import { SCOPES } from "../../src/contract/scope.ts";
import { ApiError, StoreUnavailableError } from "../../src/errors.ts";
import type { Gateway } from "../../src/gateway/gateway.ts";
import { Limits } from "../../src/gateway/limits.ts";
import { createServer, type ServerOptions } from "../../src/http/server.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Asks a server whose parts fail in ways that no caller can bring about from outside, and returns its answer to a
 * completion. The HTTP layer and the gateway are the real ones.
 */
export async function createTestServer(failing: { catalogFails?: boolean; storeFails?: boolean }): Promise<Response> {
  const gateway = {
    catalog: {
      find: () => {
        throw new Error("secret of the inside at node:internal");
      },
      list: () => [],
    },
    limits: new Limits(() => Date.now()),
    limitSettings: { requestsPerMinute: 10, tokensPerMinute: 10, concurrentRequests: 10 },
    completionMaxTokens: 4096,
    playground: { requestsPerMinute: 10, tokensPerDay: 10, maxTokens: 10 },
    clock: () => Date.now(),
    newId: () => "00000000-0000-7000-8000-000000000000",
    log: silent,
    providers: new Map(),
    ledger: {},
  } as unknown as Gateway;
  const principal = {
    tokenId: "tok_a",
    organizationId: "org_a",
    organizationKind: "standard" as const,
    scopes: new Set(SCOPES),
    models: null,
    limits: null,
    organizationLimits: null,
    keepsConversations: false,
  };
  const server = await createServer({
    gateway,
    authenticator: {
      authenticate: async () => {
        if (failing.storeFails) throw new StoreUnavailableError("secret: cannot reach db.internal");
        return principal;
      },
    },
    admin: {} as ServerOptions["admin"],
    completionMessages: "reply",
    usageReport: () => Promise.reject(new ApiError("internal_error")),
    version: "0.0.0",
    trustProxy: false,
    basePath: "",
    bodyLimitBytes: 1024,
    bodiesInFlightBytes: 1024 * 1024,
    ping: async () => {},
    standing: async () => ({ spool: { entries: 0 }, quarantine: { entries: 0 } }),
    newRequestId: () => "req_test",
    accessLog: { record: () => undefined },
    refusals: { note: () => undefined },
    log: silent,
  });
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: "Bearer any", "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] }),
    });
    return new Response(await answer.text(), answer);
  } finally {
    await server.close({ delayMs: 0, drainMs: 1000 });
  }
}
