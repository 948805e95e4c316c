import type { Identities } from "../../src/admin/identities.ts";
import { SCOPES } from "../../src/api/principal.ts";
import { ApiError, StoreUnavailableError } from "../../src/errors.ts";
import { AnswerMemory } from "../../src/gateway/answer-memory.ts";
import type { Gateway } from "../../src/gateway/gateway.ts";
import { LocalLimiter } from "../../src/gateway/limits/local.ts";
import { createServer, type Server, type ServerOptions } from "../../src/http/server.ts";
import { FairTurns } from "../../src/ledger/fair-queue.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Starts a server over parts of a test's own. The HTTP layer and the gateway are the real ones; whatever is not given is
 * of the simplest kind.
 */
export async function startTestServer(options: Partial<ServerOptions> = {}): Promise<{ url: string; server: Server }> {
  const gateway = {
    catalog: { find: () => undefined, list: () => [], aliases: new Map() },
    limits: new LocalLimiter(() => Date.now()),
    limitSettings: { requestsPerMinute: 10, tokensPerMinute: 10, concurrentRequests: 10, newValuesPerMinute: 10 },
    completionMaxTokens: 4096,
    playground: { requestsPerMinute: 10, tokensPerDay: 10, maxTokens: 10 },
    clock: () => Date.now(),
    newId: () => "00000000-0000-7000-8000-000000000000",
    log: silent,
    providers: new Map(),
    ledger: {},
    answerMemory: new AnswerMemory(),
    longTasks: new FairTurns(1),
  };
  const server = await createServer({
    authenticator: { authenticate: async () => PRINCIPAL },
    identities: { principalOf: () => Promise.reject(new ApiError("invalid_token")) } as unknown as Identities,
    admin: {} as ServerOptions["admin"],
    completions: { messages: "reply", maxTemperature: 1 },
    usageReport: () => Promise.reject(new ApiError("internal_error")),
    version: "0.0.0",
    trustProxy: false,
    basePath: "",
    keyInQuery: false,
    bodyLimitBytes: 1024,
    bodiesInFlightBytes: 1024 * 1024,
    maxConnections: 16_384,
    overload: { refusal: () => undefined, countConnection: () => undefined },
    ping: async () => {},
    ledgerStatus: async () => ({ spool: { entries: 0 }, deadLetters: { entries: 0 } }),
    newRequestId: () => "req_test",
    accessLog: { record: () => undefined },
    refusals: { note: () => undefined },
    log: silent,
    ...options,
    gateway: { ...gateway, ...options.gateway } as unknown as Gateway,
  });
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  return { url: `http://127.0.0.1:${port}`, server };
}

export const PRINCIPAL = {
  tokenId: "tok_a",
  callerId: "tok_a",
  organizationId: "org_a",
  organizationKind: "standard" as const,
  scopes: new Set(SCOPES),
  models: null,
  organizationModels: null,
  aliases: null,
  priceList: null,
  limits: null,
  organizationLimits: null,
  limitingBudgets: [],
  keepsConversations: false,
  keepsResponses: true,
  pins: null,
};

/**
 * Asks a server whose parts fail in ways that no caller can bring about from outside, and returns its answer to a
 * completion.
 */
export async function createTestServer(failing: { catalogFails?: boolean; storeFails?: boolean }): Promise<Response> {
  const find = () => {
    throw new Error("secret of the inside at node:internal");
  };
  const authenticate = async () => {
    if (failing.storeFails) throw new StoreUnavailableError("secret: cannot reach db.internal");
    return PRINCIPAL;
  };
  const gateway = { catalog: { find, list: () => [] } } as unknown as Gateway;
  const { url, server } = await startTestServer({
    gateway,
    authenticator: { authenticate },
  });
  try {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: "Bearer any", "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] }),
    });
    return new Response(await answer.text(), answer);
  } finally {
    await server.close({ delayMs: 0, drainMs: 1000 });
  }
}
