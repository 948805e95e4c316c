import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted-server.ts";

const CLIENTS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const usage = { prompt_tokens: 5, completion_tokens: 1 };
const choices = [{ index: 0, message: { role: "assistant", content: "a" }, finish_reason: "stop" }];
const COMPLETION = { id: "c", object: "chat.completion", created: 1, model: "m", choices, usage };
const MESSAGE = {
  ...{ id: "msg_1", type: "message", role: "assistant", model: "m", content: [{ type: "text", text: "a" }] },
  ...{ stop_reason: "end_turn", stop_sequence: null, usage: { input_tokens: 5, output_tokens: 1 } },
};
const VECTORS = { object: "list", data: [{ index: 0, embedding: [1] }], model: "m", usage: { prompt_tokens: 5 } };
const price = { input: 1, output: 1 };

const LONG = { timeout: 60_000 };

let upstream: ScriptedServer;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const provider = (id: string, kind: string, more: object = {}) => {
    return { id, kind, baseUrl: `${upstream.origin}/${id}/v1`, apiKey: "k", ...more };
  };
  const providers = [
    provider("foreign", "openai-compatible"),
    provider("trusted", "openai-compatible", { traceparent: true }),
    provider("claude", "anthropic", { traceparent: true }),
    provider("named", "openai-compatible", { headers: { "X-Request-Id": "of the operator" } }),
  ];
  const models = providers.map(({ id }) => ({ id, price, routes: [{ provider: id, model: "m" }] }));
  const embedding = { id: "vectors", category: "embedding", price: { input: 1 } };
  service = await startService({
    environment: { LOG_LEVEL: "info" },
    config: { providers, models: [...models, { ...embedding, routes: [{ provider: "trusted", model: "m" }] }] },
  });
  ({ token } = await makeOrganization(service, "1000"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});

const CHAT = { messages: [{ role: "user", content: "go" }], max_tokens: 5 };
type Body = typeof CHAT | { input: string };

/** Sends a request; returns its id and the headers that the upstream received. */
async function sent(path: string, model: string, answer: object, headers: Record<string, string> = {}) {
  upstream.reset();
  upstream.answer({ body: JSON.stringify(answer) });
  const body: Body = path === "/v1/embeddings" ? { input: "go" } : CHAT;
  const response = await send(service, path, token, { model, ...body }, { headers });
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
  return { id: response.headers.get("x-request-id"), received: upstream.requests[0]?.headers ?? {} };
}

const WIRES: [string, string, object][] = [
  ["/v1/chat/completions", "trusted", COMPLETION],
  ["/v1/chat/completions", "claude", MESSAGE],
  ["/v1/messages", "claude", MESSAGE],
  ["/v1/embeddings", "vectors", VECTORS],
];

describe("A request to an upstream", () => {
  test.each(WIRES)(
    "has the id of the client's response, and its trace where the provider is trusted with it: %s on %s.",
    async (path, model, answer) => {
      const { id, received } = await sent(path, model, answer, { traceparent: CLIENTS, "x-request-id": "mine" });
      expect(id).toMatch(/^req_/);
      expect(received).toMatchObject({ "x-request-id": id, traceparent: CLIENTS });
    },
  );

  test("has no trace of a client to a provider that is not trusted with it.", async () => {
    const { id, received } = await sent("/v1/chat/completions", "foreign", COMPLETION, { traceparent: CLIENTS });
    expect(received).toMatchObject({ "x-request-id": id });
    expect(received).not.toHaveProperty("traceparent");
    expect(received).not.toHaveProperty("tracestate");
  });

  test.each([
    ["without one", {}],
    ["with an invalid one", { traceparent: "00-zz-invalid-01" }],
    ["with one of zeros", { traceparent: `00-${"0".repeat(32)}-00f067aa0ba902b7-01` }],
  ])("has no trace for a client %s.", async (_name, headers) => {
    const { received } = await sent("/v1/chat/completions", "trusted", COMPLETION, headers);
    expect(received).not.toHaveProperty("traceparent");
  });

  test("has the operator's own header instead, where one is configured.", async () => {
    const { received } = await sent("/v1/chat/completions", "named", COMPLETION);
    expect(received).toMatchObject({ "x-request-id": "of the operator" });
  });
});

describe("The access log", () => {
  const lineOf = async (id: string | null) =>
    vi.waitFor(() => {
      const line = service
        .output()
        .split("\n")
        .find((text) => text.includes(`"${id}"`) && text.includes('"request"'));
      if (line === undefined) throw new Error("The request has no line yet");
      return JSON.parse(line) as Record<string, unknown>;
    }, LONG);

  test("has the client's own id of a request beside the service's.", async () => {
    const { id } = await sent("/v1/chat/completions", "foreign", COMPLETION, { "x-request-id": "checkout-17" });
    expect(await lineOf(id)).toMatchObject({ requestId: id, clientRequestId: "checkout-17" });
  });

  test("has no more than 128 characters of it, and none that breaks a line or names a token.", async () => {
    const long = `${"x".repeat(200)}\u0085`;
    const { id } = await sent("/v1/chat/completions", "foreign", COMPLETION, { "x-request-id": long });
    expect(await lineOf(id)).toMatchObject({ clientRequestId: `${"x".repeat(128)}…` });
    const { id: other } = await sent("/v1/chat/completions", "foreign", COMPLETION, {
      "x-request-id": `a\u0085${token}`,
    });
    const { clientRequestId } = await lineOf(other);
    expect(clientRequestId).toMatch(/^a\uFFFDsk-tg-.{6}…$/);
  });

  test("has no such field for a request without one.", async () => {
    const { id } = await sent("/v1/chat/completions", "foreign", COMPLETION);
    expect(await lineOf(id)).not.toHaveProperty("clientRequestId");
  });
});
