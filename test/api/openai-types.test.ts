import { afterAll, beforeAll, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { eventsOf, makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";
import { startUpstream, type Upstream } from "../support/upstream.ts";
import { expectChunk, expectCompletion, expectError, expectModelList } from "./contract-checks.ts";
import { SCRIPTED_ANSWERS } from "./scripted-answers.ts";

let upstream: Upstream;
let service: RunningService;
let token: string;
/** May call no endpoint but that of the usage. */
let limited: string;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(SCRIPTED_ANSWERS)) upstream.behave(model, behaviour);
  const capabilities = ["chat", "streaming", "tools", "structured_output", "reasoning"];
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000 },
      providers: [upstream.provider],
      models: Object.keys(SCRIPTED_ANSWERS).map((id) => {
        return { id, price: { input: 1, output: 2 }, capabilities, routes: [{ provider: "up", model: id }] };
      }),
    },
  });
  const organization = await makeOrganization(service, "1000000");
  ({ token } = organization);
  ({ token: limited } = await makeToken(service, organization.id, { scopes: ["usage:read"] }));
  const options = { method: "PATCH", headers: { ...operator(service).headers } };
  const path = `/admin/v1/organizations/${organization.id}`;
  expect((await send(service, path, null, { keeps_conversations: true }, options)).status).toBe(200);
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const WEATHER = { name: "get_weather", parameters: { type: "object", properties: {} } };
const ASKING: Record<string, object> = {
  calling: { tools: [{ type: "function", function: WEATHER }] },
  probable: { logprobs: true },
};
const complete = (fields: object) =>
  send(service, "/v1/chat/completions", token, { messages: [{ role: "user", content: "Go" }], ...fields });

test.each(Object.keys(SCRIPTED_ANSWERS))("OpenAI's types describe the chat completion of %s.", async (model) => {
  const asked = { model, ...ASKING[model] };
  const answer = await complete(asked);
  if (model === "breaking") expect(expectError(await answer.json()).type).toBe("server_error");
  else expectCompletion(await answer.json());
  for (const include_usage of [false, true]) {
    const streamed = await complete({ ...asked, stream: true, stream_options: { include_usage } });
    const events = eventsOf(await streamed.text());
    const last = events.pop() ?? "";
    if (model === "breaking") expectError(JSON.parse(last));
    else expect(last).toBe("[DONE]");
    for (const event of events) expectChunk(JSON.parse(event));
  }
});

test("OpenAI's types describe the list of models.", async () => {
  const { data } = expectModelList(await (await send(service, "/v1/models", token)).json());
  expect(data.map(({ id }) => id)).toEqual(expect.arrayContaining(Object.keys(SCRIPTED_ANSWERS)));
});

test("A deleted response is described as in OpenAI's document.", async () => {
  const created = await send(service, "/v1/responses", token, { model: "text", input: "Go" });
  const { id } = (await created.json()) as { id: string };
  const deleted = await send(service, `/v1/responses/${id}`, token, undefined, { method: "DELETE" });
  expect(await deleted.json()).toEqual({ id, object: "response", deleted: true });
});

const response = `/v1/responses/resp_${"0".repeat(32)}`;

test.each([
  ["GET", "/v1/models", [401, 403]],
  ["GET", "/v1/models/none", [401, 403, 404]],
  ["GET", response, [401, 403, 404]],
  ["DELETE", response, [401, 403, 404]],
  ["POST", "/v1/chat/completions", [401, 403, 400]],
  ["POST", "/v1/responses", [401, 403, 400]],
  ["POST", "/v1/embeddings", [401, 403, 400]],
  ["PUT", "/v1/models", [405]],
  ["PUT", response, [405]],
  ["PUT", "/v1/chat/completions", [405]],
])("OpenAI's types describe the errors of %s %s.", async (method, path, statuses) => {
  const body = method === "POST" ? {} : undefined;
  const senders = [null, limited, token];
  for (const [index, status] of statuses.entries()) {
    const answer = await send(service, path, senders[index] ?? null, body, { method });
    expect(answer.status).toBe(status);
    expectError(await answer.json());
  }
});
