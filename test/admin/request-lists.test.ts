import { afterAll, beforeAll, describe, expect, test } from "vitest";
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

interface Listed {
  id: string;
  request_id: string;
  model: string;
  charged: number;
  status: string;
  token_id: string;
  metadata: Record<string, string> | null;
}
interface Sum {
  key: string | null;
  name: string | null;
  requests: number;
  charged: number;
}
interface Found {
  kind: string;
  id: string;
  name: string;
  organization_id: string;
}

let service: RunningService;
let organization: Organization;
let admin: AdminClient;
let member: AdminClient;
/** Id of the answer to the first request. */
let answerId: string;
const micro = (credits: number) => Math.round(credits * 1_000_000);
const total = (values: readonly { charged: number }[]) => values.reduce((sum, { charged }) => sum + micro(charged), 0);

async function data<T>(path: string, client = admin): Promise<T[]> {
  const rows: T[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? "" : `${path.includes("?") ? "&" : "?"}cursor=${cursor}`;
    const { status, body } = await client.call<{ data: T[]; next_cursor: string | null }>("GET", `${path}${query}`);
    expect(status).toBe(200);
    rows.push(...body.data);
    cursor = body.next_cursor;
  } while (cursor !== null);
  return rows;
}

beforeAll(async () => {
  const sandbox = { id: "local", kind: "sandbox" };
  const modelOf = (id: string, output: number) => ({
    id,
    price: { input: 3, output },
    routes: [{ provider: "local", model: "echo" }],
  });
  service = await startService({
    config: { providers: [sandbox], models: [modelOf("cheap", 7), modelOf("dear", 900)] },
  });
  admin = operator(service);
  organization = await makeOrganization(service, "50", { scopes: MEMBER_SCOPES });
  const other = await makeOrganization(service, "50");
  member = await signIn(service, organization.token);
  for (const [index, words] of ["a", "b b b", "c ".repeat(60), "d", "e e"].entries()) {
    const body = {
      model: index % 2 === 0 ? "cheap" : "dear",
      messages: [{ role: "user", content: words }],
      metadata: { team: index < 3 ? "red" : "=1+1" },
    };
    const answer = await send(service, "/v1/chat/completions", organization.token, body);
    const { id } = (await answer.json()) as { id: string };
    answerId ??= id;
    await (await send(service, "/v1/chat/completions", other.token, body)).text();
  }
});
afterAll(() => service?.end());

describe("sums of requests", () => {
  test("the sums of every grouping, the list, the overview and the balance agree to the micro-credit", async () => {
    const of = `organization_id=${organization.id}`;
    const list = await data<Listed>(`/requests?${of}`);
    expect(list).toHaveLength(5);
    const spent = total(list);
    for (const by of ["token", "model", "route", "hour", "day", "organization", "metadata&metadata_key=team"]) {
      const sums = await data<Sum>(`/requests/sums?${of}&by=${by}`);
      expect([by, total(sums)]).toEqual([by, spent]);
      expect(sums.reduce((sum, { requests }) => sum + requests, 0)).toBe(5);
    }
    const byTeam = await data<Sum>(`/requests/sums?${of}&by=metadata&metadata_key=team`);
    expect(byTeam.map(({ key, requests }) => [key, requests]).sort()).toEqual([
      ["=1+1", 2],
      ["red", 3],
    ]);
    const overview = await admin.call<{ totals: { spent: number } }>("GET", `/overview?${of}`);
    expect(micro(overview.body.totals.spent)).toBe(spent);
    const shown = await admin.call<{ credits: { used: number } }>("GET", `/organizations/${organization.id}`);
    expect(micro(shown.body.credits.used)).toBe(spent);
    expect(total(await data<Sum>("/requests/sums?by=token", member))).toBe(spent);
  });

  test("the requests of a group are those that its filter finds", async () => {
    const of = `organization_id=${organization.id}`;
    const [dearest] = await data<Sum>(`/requests/sums?${of}&by=model`);
    expect(dearest?.key).toBe("dear");
    expect(total(await data<Listed>(`/requests?${of}&model=dear`))).toBe(micro(dearest?.charged ?? 0));
    const team = await data<Listed>(`/requests?${of}&metadata_key=team&metadata_value=%3D1%2B1`);
    expect(team.map(({ metadata }) => metadata?.team)).toEqual(["=1+1", "=1+1"]);
    const charges = (await data<Listed>(`/requests?${of}&model=dear`)).map(({ charged }) => charged);
    const least = await data<Listed>(`/requests?${of}&charged_min=${Math.min(...charges)}`);
    expect(least.map(({ model }) => model)).toEqual(["dear", "dear"]);
  });
});

test("requests come by charge, the highest first", async () => {
  const sorted = await data<Listed>(`/requests?organization_id=${organization.id}&sort=charged`);
  const charges = sorted.map(({ charged }) => charged);
  expect(charges).toEqual(charges.toSorted((one, other) => other - one));
  expect(sorted).toHaveLength(5);
});

test("an export has the requests of the list, and no text in it becomes a formula", async () => {
  const filter = `organization_id=${organization.id}&model=cheap`;
  const list = await data<Listed>(`/requests?${filter}`);
  const lines = await admin.call<string>("GET", `/requests.jsonl?${filter}`);
  expect(lines.headers.get("content-disposition")).toBe('attachment; filename="requests.jsonl"');
  expect(
    lines.body
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line)),
  ).toEqual(list);
  const csv = await admin.call<string>("GET", `/requests.csv?${filter}`);
  const [head = "", ...rows] = csv.body.split("\r\n").filter(Boolean);
  expect(head).toMatch(/^id,request_id,created_at,/);
  expect(rows.map((row) => row.split(",")[0])).toEqual(list.map(({ id }) => id));
  const column = head.split(",").indexOf("charged");
  expect(rows.reduce((sum, row) => sum + micro(Number(row.split(",")[column])), 0)).toBe(total(list));
  expect(csv.body).not.toMatch(/(^|,)=/m);
  const foreign = await member.call<string>("GET", "/requests.csv");
  expect(foreign.body.split("\r\n").filter(Boolean)).toHaveLength(1 + 5);
});

test.each([
  ["/requests?sort=charged&status=running", "sort"],
  ["/requests?metadata_value=x", "metadata_value"],
  ["/requests?sort=dearest", "sort"],
  ["/requests?charged_min=0.0000001", "charged_min"],
  ["/requests/sums?by=metadata", "by"],
  ["/requests/sums?by=model&status=refused", "status"],
  ["/requests/sums?by=model&cursor=x", "cursor"],
])("%s is refused, and the answer names '%s'", async (path, param) => {
  const { status, body } = await admin.call<{ error: { param: string } }>("GET", path);
  expect([status, body.error.param]).toEqual([400, param]);
});

describe("the search", () => {
  const search = (query: string, client = admin) => data<Found>(`/search?query=${encodeURIComponent(query)}`, client);

  test("it finds a request by each of its ids, organizations and tokens by name and id, and grants by reference", async () => {
    const { body: grant } = await admin.call<{ id: string }>("POST", `/organizations/${organization.id}/grants`, {
      amount: 1,
      reference: "invoice 7/2026",
    });
    const { tokenId: id } = await makeToken(service, organization.id, { name: "web shop" });
    const { prefix } = (await admin.call<{ prefix: string }>("GET", `/tokens/${id}`)).body;
    const [request] = await data<Listed>(`/requests?request_id=${answerId}`);
    expect(await search(answerId)).toMatchObject([{ kind: "request", id: request?.id, name: "cheap" }]);
    expect(await search(request?.request_id ?? "")).toMatchObject([{ kind: "request", id: request?.id }]);
    expect(await search("web SHOP")).toMatchObject([{ kind: "token", id }]);
    expect(await search(prefix)).toMatchObject([{ kind: "token", id }]);
    expect(await search(organization.id)).toMatchObject([{ kind: "organization", id: organization.id }]);
    for (const query of ["invoice 7/2026", grant.id]) {
      expect(await search(query)).toMatchObject([{ kind: "grant", id: grant.id, organization_id: organization.id }]);
    }
    expect(await search("nothing like it")).toEqual([]);
    expect(await search("invoice 7/2026", member)).toHaveLength(1);
  });

  test("a member finds nothing of another organization", async () => {
    const other = await makeOrganization(service, "1", { scopes: MEMBER_SCOPES });
    await admin.call("POST", `/organizations/${other.id}/grants`, { amount: 1, reference: "secret" });
    for (const query of [other.id, other.tokenId, "secret"]) expect(await search(query, member)).toEqual([]);
    const stranger = await signIn(service, other.token);
    expect(await search(answerId, stranger)).toEqual([]);
  });
});

test("a refund takes any id of the request", async () => {
  const [request] = await data<Listed>(`/requests?request_id=${answerId}`);
  const path = `/organizations/${organization.id}/credits`;
  for (const request_id of [answerId, request?.request_id, request?.id]) {
    const { status } = await admin.call("POST", path, { amount: 0.000001, request_id });
    expect([request_id, status]).toEqual([request_id, 201]);
  }
  const { body } = await admin.call<{ credited: number }>("GET", `/requests/${answerId}`);
  expect(body.credited).toBe(0.000003);
  const unknown = await admin.call<{ error: { param: string } }>("POST", path, { amount: 1, request_id: "chatcmpl-x" });
  expect([unknown.status, unknown.body.error.param]).toEqual([400, "request_id"]);
});
