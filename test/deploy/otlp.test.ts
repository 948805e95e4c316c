import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Collector, type ReceivedSpan, spansOf, startCollector } from "../support/collector.ts";
import { readExposition, sumOf } from "../support/prometheus.ts";
import { makeOrganization, type Organization, type ServiceProcess, send, startProcess } from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const COMPLETIONS = "/v1/chat/completions";
const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID = "00f067aa0ba902b7";
/** The attribute of the resource by which a collector tells the processes of a service apart. */
const INSTANCE_ID = /service\.instance\.id[^-]*?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/;
const METRICS_TOKEN = "metrics-token-of-this-test";

let upstream: Upstream;
let collector: Collector;
let service: ServiceProcess;
let organization: Organization;
/** Ids of the requests that were made before the tests: all traces are exported together. */
let requests: Record<
  "traced" | "unsampled" | "continued" | "unsampledAtOwn" | "refused" | "unanswered" | "several" | "last",
  string
>;

beforeAll(async () => {
  [upstream, collector] = await Promise.all([startUpstream(), startCollector()]);
  const usage = { prompt_tokens: 5, completion_tokens: 2 };
  upstream.behave("fine-1", answering({ words: ["one ", "two"], usage }));
  upstream.behave("own-1", answering({ words: ["one"], usage }));
  upstream.behave("two-1", ({ response }) => {
    const choices = [
      { index: 1, message: { role: "assistant", content: "one" }, finish_reason: "length" },
      { index: 0, message: { role: "assistant", content: "two" }, finish_reason: "stop" },
    ];
    sendJson(response, 200, { object: "chat.completion", choices, usage });
  });
  upstream.behave("broken-1", ({ response }) => sendJson(response, 503, { error: { message: "no" } }));
  const route = (model: string) => ({ provider: "up", model });
  service = await startProcess({
    environment: {
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
      OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=secret%20tenant",
      OTEL_SERVICE_NAME: "gateway-test",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=staging",
    },
    config: {
      metrics: { token: METRICS_TOKEN },
      telemetry: { metricsSeconds: 1 },
      providers: [
        { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl },
        { id: "own", kind: "openai-compatible", baseUrl: upstream.baseUrl, traceparent: true },
      ],
      models: [
        { id: "fine", price: { input: 1, output: 1 }, routes: [route("broken-1"), route("fine-1")] },
        { id: "own", price: { input: 1, output: 1 }, routes: [{ provider: "own", model: "own-1" }] },
        { id: "two", price: { input: 1, output: 1 }, routes: [route("two-1")] },
        { id: "broken", price: { input: 1, output: 1 }, routes: [route("broken-1")] },
      ],
    },
  });
  organization = await makeOrganization(service, "100");
  const traceparent = (flags: string) => ({ traceparent: `00-${TRACE_ID}-${PARENT_ID}-${flags}` });
  requests = {
    traced: await ask("fine", { stream: true, headers: traceparent("01") }),
    unsampled: await ask("fine", { headers: traceparent("00") }),
    continued: await ask("own", { headers: traceparent("01") }),
    unsampledAtOwn: await ask("own", { headers: traceparent("00") }),
    refused: await ask("none-such", { headers: { traceparent: "00-zz-invalid-01" } }),
    unanswered: await ask("broken"),
    several: await ask("two", { n: 2 }),
    last: await ask("fine"),
  };
});
afterAll(async () => {
  await service?.end();
  await Promise.all([upstream?.close(), collector?.close()]);
});

interface Asked {
  headers?: Record<string, string>;
  stream?: true;
  n?: number;
}

const ask = async (model: string, { headers, ...fields }: Asked = {}) => {
  const body = { model, messages: [{ role: "user", content: "hello" }], ...fields };
  const answer = await send(service, COMPLETIONS, organization.token, body, { headers: headers ?? {} });
  await answer.text();
  return answer.headers.get("x-request-id") ?? "";
};

/** Returns the server span of a request, and its parts in the order of their start. */
async function traceOf(requestId: string): Promise<{ span: ReceivedSpan; parts: ReceivedSpan[] }> {
  return vi.waitFor(
    () => {
      const spans = spansOf(collector);
      const span = spans.find(({ attributes }) => attributes["tollgate.request.id"] === requestId);
      if (span === undefined) throw new Error("The span has not been exported");
      return { span, parts: spans.filter(({ parentSpanId }) => parentSpanId === span.spanId) };
    },
    { timeout: 60_000, interval: 50 },
  );
}

describe("A trace", () => {
  test("continues its client's, with spans for the admission, each call and the settlement", async () => {
    const { span, parts } = await traceOf(requests.traced);
    expect(span).toMatchObject({ traceId: TRACE_ID, parentSpanId: PARENT_ID, name: "chat fine", kind: 2, status: 0 });
    expect(span.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": COMPLETIONS,
      "http.response.status_code": 200,
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "up",
      "gen_ai.request.model": "fine",
      "gen_ai.response.model": "fine-1",
      "gen_ai.response.finish_reasons": ["stop"],
      "gen_ai.usage.input_tokens": 5,
      "gen_ai.usage.output_tokens": 2,
      "tollgate.credits.charged": 0.000007,
    });
    expect(span.attributes["error.type"]).toBeUndefined();
    expect(parts.map(({ name, kind, status }) => [name, kind, status])).toEqual([
      ["admission", 1, 0],
      ["chat broken-1", 3, 2],
      ["chat fine-1", 3, 0],
      ["settlement", 1, 0],
    ]);
    expect(parts[1]?.attributes).toMatchObject({ "error.type": "overloaded", "gen_ai.request.model": "broken-1" });
    for (const { traceId, startNanoseconds, endNanoseconds } of parts) {
      expect(traceId).toBe(TRACE_ID);
      expect(startNanoseconds >= span.startNanoseconds && endNanoseconds <= span.endNanoseconds).toBe(true);
    }
  });

  test("of an answer with several choices has the finish reason of each, in the order of their indexes", async () => {
    const { span } = await traceOf(requests.several);
    expect(span.attributes).toMatchObject({ "gen_ai.response.finish_reasons": ["stop", "length"] });
  });

  test("of a request that is refused has the error code, and no parts", async () => {
    const { span, parts } = await traceOf(requests.refused);
    expect(span).toMatchObject({ name: `POST ${COMPLETIONS}`, parentSpanId: "", status: 0 });
    expect(span.attributes).toMatchObject({ "error.type": "model_not_found", "http.response.status_code": 404 });
    expect(span.attributes["gen_ai.request.model"]).toBeUndefined();
    expect(parts).toEqual([]);
  });

  test("of a request that no upstream answers is an error", async () => {
    const { span } = await traceOf(requests.unanswered);
    expect(span).toMatchObject({ name: "chat broken", status: 2 });
    expect(span.attributes).toMatchObject({ "error.type": "overloaded" });
    expect(span.attributes["gen_ai.usage.input_tokens"]).toBeUndefined();
  });

  test("is not made where the client does not sample it", async () => {
    await traceOf(requests.last);
    const exported = spansOf(collector).map(({ attributes }) => attributes["tollgate.request.id"]);
    expect(exported).not.toContain(requests.unsampled);
  });

  test("is made known to no upstream that is not trusted with it", () => {
    const others = upstream.requests.filter(({ body }) => body.model !== "own-1");
    expect(others.length).toBeGreaterThan(3);
    expect(others.filter(({ headers }) => headers.traceparent !== undefined)).toEqual([]);
  });

  test("can be continued, below the span of the request, by an upstream that is", async () => {
    const { span } = await traceOf(requests.continued);
    const sentWith = (id: string) => upstream.requests.find(({ headers }) => headers["x-request-id"] === id)?.headers;
    expect(sentWith(requests.continued)?.traceparent).toBe(`00-${TRACE_ID}-${span.spanId}-01`);
    const unsampled = new RegExp(`^00-${TRACE_ID}-(?!${PARENT_ID})[0-9a-f]{16}-00$`);
    expect(sentWith(requests.unsampledAtOwn)?.traceparent).toMatch(unsampled);
  });
});

test("the log line of a request has its upstream, tokens, credits, and the trace that is recorded", async () => {
  const lineOf = (id: string) =>
    service
      .output()
      .split("\n")
      .find((line) => line.includes(`"requestId":"${id}"`) && line.endsWith('"msg":"request"}'));
  await expect.poll(() => lineOf(requests.last)).toBeDefined();
  const facts = { upstream: "up/fine-1", promptTokens: 5, completionTokens: 2, credits: "0.000007" };
  const traced = JSON.parse(lineOf(requests.traced) ?? "");
  expect(traced).toMatchObject({ ...facts, timeToFirstTokenMs: expect.any(Number), traceId: TRACE_ID });
  const unsampled = JSON.parse(lineOf(requests.unsampled) ?? "");
  expect(unsampled).toMatchObject(facts);
  expect(unsampled).not.toHaveProperty("traceId");
  const unanswered = JSON.parse(lineOf(requests.unanswered) ?? "");
  expect(unanswered).toMatchObject({ upstream: "up/broken-1" });
  expect(unanswered).not.toHaveProperty("credits");
});

test("metrics and traces are exported as protobuf, with the headers and the resource of the environment", async () => {
  await vi.waitFor(
    () => {
      const metrics = collector.received.filter(({ path }) => path === "/v1/metrics");
      expect(metrics.some(({ body }) => body.includes("gen_ai.client.token.usage"))).toBe(true);
      expect(collector.received.some(({ path }) => path === "/v1/traces")).toBe(true);
    },
    { timeout: 60_000, interval: 50 },
  );
  expect(new Set(collector.received.map(({ path }) => path))).toEqual(new Set(["/v1/metrics", "/v1/traces"]));
  for (const { headers, body } of collector.received) {
    expect(headers).toMatchObject({ "content-type": "application/x-protobuf", "x-tenant": "secret tenant" });
    for (const text of ["gateway-test", "deployment.environment.name", "staging"])
      expect(body.includes(text)).toBe(true);
    for (const id of [organization.id, organization.tokenId, organization.token]) expect(body.includes(id)).toBe(false);
  }
  const instances = collector.received.map(({ body }) => INSTANCE_ID.exec(body.toString("latin1"))?.[1]);
  expect(new Set(instances)).toEqual(new Set([expect.any(String)]));
  expect(service.output()).not.toContain("secret tenant");
});

test("/metrics on the main port requires the token", async () => {
  const status = async (sent: string | null) => (await send(service, "/metrics", sent)).status;
  expect([await status(null), await status("metrics-token-of-this"), await status(METRICS_TOKEN)]).toEqual([
    401, 401, 200,
  ]);
  const metrics = readExposition(await (await send(service, "/metrics", METRICS_TOKEN)).text());
  expect(sumOf(metrics, "tollgate_store_up")).toBe(1);
  expect(service.output()).not.toContain(METRICS_TOKEN);
});

test("an unreachable collector slows no request and hinders no stop", async () => {
  const other = await startProcess({ environment: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9" } });
  const { token } = await makeOrganization(other, "1");
  const body = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
  expect((await send(other, COMPLETIONS, token, body)).status).toBe(200);
  expect(await other.end()).toBe(0);
  expect(other.output()).toContain("telemetry could not be exported");
});
