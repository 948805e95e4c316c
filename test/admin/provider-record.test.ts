import { afterAll, beforeAll, expect, test } from "vitest";
import { type AdminClient, operator, signIn } from "../support/admin.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";

const RESPONSE_ID = "gen-1790000000-AbC";
const USAGE = { prompt_tokens: 8, completion_tokens: 1, total_tokens: 9, cost: 0.00001234 };

/** Answers as OpenRouter does, with its own id in every event and its cost in the usage. */
const withRecord: Behaviour = ({ response, body }) => {
  const isStream = (body as { stream?: boolean }).stream === true;
  response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
  if (!isStream) {
    const choices = [{ index: 0, message: { role: "assistant", content: "a" }, finish_reason: "stop" }];
    response.end(JSON.stringify({ id: RESPONSE_ID, choices, usage: USAGE }));
    return;
  }
  const event = (fields: object) => `data: ${JSON.stringify({ id: RESPONSE_ID, ...fields })}\n\n`;
  response.write(event({ choices: [{ index: 0, delta: { content: "a" } }] }));
  response.write(event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }));
  response.end(`${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`);
};

let upstream: Upstream;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("recorded", withRecord);
  service = await startService({
    config: {
      providers: [upstream.provider],
      models: [{ id: "recorded", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "recorded" }] }],
    },
  });
  organization = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

async function completed(model: string, stream: boolean, token = organization.token): Promise<string> {
  const body = { model, messages: [{ role: "user", content: "go" }], stream };
  const answer = await send(service, "/v1/chat/completions", token, body);
  expect(answer.status).toBe(200);
  await answer.text();
  const filter = `request_id=${answer.headers.get("x-request-id")}`;
  const { data } = (await operator(service).call<{ data: { id: string }[] }>("GET", `/requests?${filter}`)).body;
  return data[0]?.id ?? "";
}

test.each([true, false])(
  "the provider's response id and cost are shown to operators alone (stream: %s)",
  async (stream) => {
    const id = await completed("recorded", stream);
    const shown = await operator(service).call("GET", `/requests/${id}`);
    expect(shown.body).toMatchObject({ provider_response_id: RESPONSE_ID, provider_cost: "0.00001234" });
    const { token } = await makeToken(service, organization.id, { scopes: MEMBER_SCOPES });
    const member = await (await signIn(service, token)).call("GET", `/requests/${id}`);
    expect(member.body).toMatchObject({ id, provider_response_id: null, provider_cost: null });
    const [inList, inOwnList] = [operator(service), await signIn(service, token)].map((client) =>
      client.call<{ data: object[] }>("GET", `/requests?organization_id=${organization.id}&model=recorded&limit=1`),
    );
    expect((await inList)?.body.data).toMatchObject([{ id, provider_cost: "0.00001234" }]);
    expect((await inOwnList)?.body.data).toMatchObject([{ id, provider_cost: null }]);
  },
);

test("a request is found by the provider's id of its answer", async () => {
  const id = await completed("recorded", false);
  expect((await operator(service).call("GET", `/requests/${RESPONSE_ID}`)).body).toMatchObject({ id });
  const listed = await operator(service).call("GET", `/requests?request_id=${RESPONSE_ID}`);
  expect(listed.body).toMatchObject({ data: [{ id }] });
});

test("the provider's cost is exported to operators alone", async () => {
  await completed("recorded", false);
  const { token } = await makeToken(service, organization.id, { scopes: MEMBER_SCOPES });
  const path = `/organizations/${organization.id}/statement.csv?kind=charge`;
  const costsFor = async (client: AdminClient) => {
    const { body } = await client.call<unknown>("GET", path);
    const [head = "", ...lines] = String(body).split("\r\n");
    const at = head.split(",").indexOf("provider_cost");
    expect(at).toBeGreaterThan(0);
    return lines.filter((line) => line.includes(",recorded,")).map((line) => line.split(",")[at]);
  };
  expect((await costsFor(operator(service))).at(-1)).toBe("0.00001234");
  expect((await costsFor(await signIn(service, token))).at(-1)).toBe("");
});

interface Counts {
  requests: number;
  spent: number;
  provider_cost: { amount: string; spent: number } | null;
}
interface Overview {
  totals: Counts;
  days: (Counts & { models: Counts[] })[];
  top_models: (Counts & { model: string })[];
  top_tokens: Counts[];
  top_organizations: (Counts & { organization_id: string })[];
}

test("the overview has the costs of providers next to the charges of their requests, for operators alone", async () => {
  const own = await makeOrganization(service, "10");
  for (const stream of [true, false, true]) await completed("recorded", stream, own.token);
  await completed("sandbox/echo", true, own.token);
  const path = `/overview?organization_id=${own.id}`;
  const { body } = await operator(service).call<Overview>("GET", path);
  const [recorded, echo] = ["recorded", "sandbox/echo"].map((id) => body.top_models.find(({ model }) => model === id));
  const cost = { amount: "0.00003702", spent: recorded?.spent };
  expect(recorded).toMatchObject({ requests: 3, provider_cost: cost });
  expect(recorded?.spent).toBeGreaterThan(0);
  expect(echo).toMatchObject({ requests: 1, provider_cost: { amount: "0", spent: 0 } });
  expect(echo?.spent).toBeGreaterThan(0);
  for (const { requests, provider_cost } of [body.totals, body.top_tokens[0], body.days.at(-1)].flatMap(
    (of) => of ?? [],
  ))
    expect([requests, provider_cost]).toEqual([4, cost]);
  const { top_organizations: all } = (await operator(service).call<Overview>("GET", "/overview")).body;
  expect(all.find(({ organization_id: id }) => id === own.id)?.provider_cost).toEqual(cost);
  const { token } = await makeToken(service, own.id, { scopes: MEMBER_SCOPES });
  const member = (await (await signIn(service, token)).call<Overview>("GET", path)).body;
  const shown = [member.totals, ...member.top_models, ...member.top_tokens, ...member.days];
  const counts = [...shown, ...member.days.flatMap(({ models }) => models)];
  expect(counts.map(({ provider_cost: of }) => of)).toEqual(counts.map(() => null));
  expect(member.totals.requests).toBe(4);
});

test("the provider's id and cost are null if the provider reports neither", async () => {
  const shown = await operator(service).call("GET", `/requests/${await completed("sandbox/echo", true)}`);
  expect(shown.body).toMatchObject({ provider_response_id: null, provider_cost: null });
});
