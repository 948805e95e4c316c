import { afterAll, beforeAll, expect, test } from "vitest";
import { type AdminClient, operator, signIn } from "../support/admin.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const COMPLETIONS = "/v1/chat/completions";
const SECRET = "secretprompt";

interface Listed {
  data: {
    status: string;
    model: string | null;
    failure: string;
    request_id: string;
    id: string;
    refusal: Refusal | null;
  }[];
  next_cursor: string | null;
}
interface Refusal {
  status: number;
  message: string;
  endpoint: string;
  count: number;
}

let service: RunningService;
let poor: Organization;
let other: Organization;
let limited: Organization;
let admin: AdminClient;

beforeAll(async () => {
  service = await startService({ config: { limits: { requestsPerMinute: 1_000 } } });
  poor = await makeOrganization(service, "0.000001");
  limited = await makeOrganization(service, "10", { scopes: ["chat.completions:write"], models: ["sandbox/echo"] });
  other = await makeOrganization(service, "10");
  admin = operator(service);
});
afterAll(() => service?.end());

const body = (fields: object = {}) => ({
  model: "sandbox/echo",
  messages: [{ role: "user", content: SECRET }],
  ...fields,
});

/** The lines of the access log, by request id. */
function accessLines(): Record<string, unknown>[] {
  const lines = service
    .output()
    .split("\n")
    .filter((line) => line.startsWith("{") && line.endsWith("}"));
  return lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request");
}

async function sent(path: string, token: string | null, content?: unknown): Promise<{ id: string; status: number }> {
  const answer = await send(service, path, token, content);
  await answer.arrayBuffer();
  return { id: answer.headers.get("x-request-id") ?? "", status: answer.status };
}

test("Every request has a log line with its status, code, organization, token, model and duration, and no secret.", async () => {
  const requests = [
    [await sent(COMPLETIONS, null, body()), { status: 401, code: "missing_token", organizationId: null }],
    [await sent(COMPLETIONS, `${other.token}x`, body()), { status: 401, code: "invalid_token", organizationId: null }],
    [
      await sent(COMPLETIONS, poor.token, body()),
      { status: 402, code: "insufficient_credits", ...namesOf(poor), model: "sandbox/echo" },
    ],
    [
      await sent("/v1/usage", limited.token),
      { status: 403, code: "insufficient_scope", ...namesOf(limited), route: "/v1/usage" },
    ],
    [
      await sent(COMPLETIONS, other.token, body({ model: "no\u001b\r\nsuch" })),
      { status: 404, code: "model_not_found", model: "no\ufffd\ufffd\ufffdsuch" },
    ],
    [
      await sent(COMPLETIONS, other.token, body({ temperature: 9 })),
      { status: 400, code: "decimal_above_max_value", ...namesOf(other) },
    ],
    [await sent(COMPLETIONS, other.token, "{"), { status: 400, code: "invalid_json", ...namesOf(other), model: null }],
    [await sent(`/nowhere?access_token=${other.token}`, null), { status: 404, code: "not_found", route: null }],
    [
      await sent(COMPLETIONS, other.token, body()),
      { status: 200, code: null, ...namesOf(other), model: "sandbox/echo" },
    ],
    [
      await sent(COMPLETIONS, other.token, body({ stream: true })),
      { status: 200, code: null, method: "POST", route: COMPLETIONS },
    ],
  ] as const;
  const found = (id: string) => accessLines().find(({ requestId }) => requestId === id);
  for (const [{ id, status }, expected] of requests) {
    expect(status).toBe(expected.status);
    await expect.poll(() => found(id)).toMatchObject({ ...expected, durationMs: expect.any(Number) });
  }
  expect(service.output()).not.toContain(SECRET);
  for (const { token } of [poor, other, limited])
    expect(
      accessLines()
        .map((line) => JSON.stringify(line))
        .join(),
    ).not.toContain(token.slice(12));
});

const namesOf = ({ id, tokenId }: Organization) => ({ organizationId: id, tokenId });

test("The log lines of a failed stream and of a disconnected client have the outcome.", async () => {
  const fault = (content: string) => ({ model: "sandbox/fault", messages: [{ role: "user", content }], stream: true });
  const { id } = await sent(COMPLETIONS, other.token, fault("reset after 3 tokens"));
  await expect
    .poll(() => accessLines().find(({ requestId }) => requestId === id))
    .toMatchObject({ status: 200, code: "upstream_error", level: "warn" });
  const answer = await send(service, COMPLETIONS, other.token, fault("silence after 5 tokens 60s"));
  await answer.body?.cancel();
  const left = answer.headers.get("x-request-id");
  await expect
    .poll(() => accessLines().find(({ requestId }) => requestId === left))
    .toMatchObject({ status: 499, code: "client_disconnected" });
});

test("Rejected requests of a known organization are listed only for the operator and its members.", async () => {
  await sent(COMPLETIONS, poor.token, body({ max_tokens: 7 }));
  const list = async (client: AdminClient, query = "") =>
    (await client.call<Listed>("GET", `/requests?${query}`)).body.data;
  const failures = async () => (await list(admin, "status=refused&limit=200")).map(({ failure }) => failure);
  const ofPoor = () => list(admin, `organization_id=${poor.id}`);
  const countOf = (rows: Listed["data"]) => rows.reduce((sum, { refusal }) => sum + (refusal?.count ?? 0), 0);
  // Both requests of this token failed with the same error: they may share a row.
  await expect.poll(async () => countOf(await ofPoor())).toBe(2);
  await expect.poll(failures).toEqual(expect.arrayContaining(["insufficient_scope", "model_not_found"]));
  const refused = await ofPoor();
  expect(refused[0]).toMatchObject({
    status: "refused",
    failure: "insufficient_credits",
    model: "sandbox/echo",
    refusal: { status: 402, endpoint: `POST ${COMPLETIONS}` },
  });
  expect(refused[0]?.refusal?.message).toContain("do not cover this request");
  const detail = await admin.call("GET", `/requests/${refused[0]?.id}`);
  expect(detail.body).toMatchObject({ status: "refused", prices: null, charged: 0, attempts: [] });
  expect(await list(admin, `organization_id=${poor.id}&status=failed`)).toEqual([]);
  // Requests with a hold are not listed as refused.
  expect(
    (await list(admin, `organization_id=${other.id}`)).filter(({ failure }) => failure === "upstream_error"),
  ).toMatchObject([{ status: "failed", refusal: null }]);

  const member = async ({ id: organization }: Organization) => {
    const { token } = await makeToken(service, organization, { scopes: ["usage:read", "console:read"] });
    return signIn(service, token);
  };
  const poors = await member(poor);
  expect((await list(poors)).map(({ id }) => id)).toEqual(refused.map(({ id }) => id));
  const others = await member(other);
  expect((await list(others)).filter(({ failure }) => failure === "insufficient_credits")).toEqual([]);
  expect((await others.call("GET", `/requests/${refused[0]?.id}`)).status).toBe(404);
});

test("Pages list completed and rejected requests in one order, each once.", async () => {
  const seen: string[] = [];
  let cursor: string | null = null;
  const all = (await admin.call<Listed>("GET", `/requests?organization_id=${other.id}&limit=200`)).body.data;
  do {
    const at: string = cursor === null ? "" : `&cursor=${cursor}`;
    const { body: page } = await admin.call<Listed>("GET", `/requests?organization_id=${other.id}&limit=1${at}`);
    seen.push(...page.data.map(({ id }) => id));
    cursor = page.next_cursor;
  } while (cursor !== null);
  expect(new Set(all.map(({ status }) => status)).size).toBeGreaterThan(1);
  expect(seen).toEqual(all.map(({ id }) => id));
});
