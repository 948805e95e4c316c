import { Ajv } from "ajv";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ORGANIZATION_ROLES, type Role, rolesWith } from "../../src/api/admin/roles.ts";
import { type AdminEndpoint, adminEndpoints } from "../../src/http/admin/endpoint.ts";
import { AdminClient, FROM_CONSOLE, operator, signIn } from "../support/admin.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { makeStatements } from "../support/statements.ts";
import { StripeStandIn, stripeSettings } from "../support/stripe.ts";

/** Six digits behind the point, so that no id or time holds them by chance. */
const FOREIGN_CREDITS = "777.314159";
const NOTE = "late payer, do not extend";
const TARGET = "https://hooks.example.com/";

let service: RunningService;
let issuer: Issuer;
let mine: Organization;
let foreign: Organization;
/** Callers whose role is limited to `mine`. */
const clients = new Map<Role, AdminClient>();

let stripe: StripeStandIn;
beforeAll(async () => {
  issuer = await startIssuer();
  stripe = await new StripeStandIn().start();
  const roles = ["owner", "developer", "billing"] as const;
  const rules = roles.map((role) => ({ when: { role }, role, organization: { claim: "organization" } }));
  service = await startService({
    config: {
      identity: { issuers: [{ issuer: issuer.url, audience: AUDIENCE, roles: rules }] },
      payments: { stripe: stripeSettings(stripe.url) },
    },
  });
  mine = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
  foreign = await makeOrganization(service, FOREIGN_CREDITS);
  const bounds = `/organizations/${mine.id}/token-bounds`;
  expect((await operator(service).call("PATCH", bounds, bodies.changeTokenBounds)).status).toBe(200);
  clients.set("member", await signIn(service, mine.token));
  for (const role of roles) {
    const token = await issuer.token({ sub: role, role, organization: mine.id });
    clients.set(role, new AdminClient(service, { authorization: `Bearer ${token}` }));
  }
  for (const organization of [mine, foreign]) {
    await operator(service).call("PATCH", `/organizations/${organization.id}`, {
      keeps_conversations: true,
      note: NOTE,
    });
    await send(service, "/v1/chat/completions", organization.token, {
      model: "sandbox/echo",
      messages: [{ role: "user", content: "hello" }],
    });
    const filter = `organization_id=${organization.id}`;
    const { body } = await operator(service).call<{ data: { id: string }[] }>("GET", `/requests?${filter}`);
    const id = body.data[0]?.id ?? "none";
    const show = () => operator(service).call("GET", `/requests/${id}/conversation`);
    await vi.waitFor(async () => expect((await show()).status).toBe(200), { timeout: 60_000 });
    requestIds.set(organization.id, id);
    await makeParts(organization);
  }
});
afterAll(async () => {
  await service?.end();
  await issuer?.close();
  await stripe?.close();
});

/** Creates a budget, a receiver, a delivery, a statement and a voucher for an organization, which the paths name from then on. */
async function makeParts({ id }: Organization): Promise<void> {
  const make = async (path: string, body: object) => {
    const made = await operator(service).call<{ id: string }>("POST", path, body);
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    return made.body.id;
  };
  budgetIds.set(id, await make(`/organizations/${id}/budgets`, { name: "All", window: "month", amount: 1_000 }));
  receiverIds.set(id, await make("/receivers", { organization_id: id, ...bodies.createReceiver }));
  deliveryIds.set(id, await make(`/receivers/${receiverIds.get(id)}/test`, {}));
  statementIds.set(id, (await makeStatements(service, id))[0]?.id ?? "none");
  const batch = await operator(service).call<{ id: string; codes: string[] }>("POST", "/voucher-batches", VOUCHERS);
  batchIds.set(id, batch.body.id);
  codes.set(id, batch.body.codes[0] ?? "none");
}

const requestIds = new Map<string, string>();
const budgetIds = new Map<string, string>();
const receiverIds = new Map<string, string>();
const deliveryIds = new Map<string, string>();
const statementIds = new Map<string, string>();
const batchIds = new Map<string, string>();
const codes = new Map<string, string>();
const VOUCHERS = { name: "Trial", count: 1, amount: 1 };
/** Ids of an organization for the parameters of paths, by the path's first word. */
const idsOf: Record<string, (organization: Organization) => string> = {
  organizations: ({ id }) => id,
  tokens: ({ tokenId }) => tokenId,
  requests: ({ id }) => requestIds.get(id) ?? "none",
  receivers: ({ id }) => receiverIds.get(id) ?? "none",
  statements: ({ id }) => statementIds.get(id) ?? "none",
  deliveries: ({ id }) => deliveryIds.get(id) ?? "none",
  "voucher-batches": ({ id }) => batchIds.get(id) ?? "none",
};
/** Operations that change no part of an organization which paths name. */
const LEAVES_PARTS = new Set(["requestCredits", "setTopUp", "endTopUp", "saveCard"]);
/** Bodies that would be taken, but for who sends them. */
const bodies: Record<string, object> = {
  closeOrganization: { rest: "lapsed" },
  createVoucherBatch: VOUCHERS,
  createCheckout: { amount: 10, return_url: "https://ai.example.com/credits" },
  setTopUp: { threshold: 1, amount: 10, monthly_maximum: 10 },
  saveCard: { return_url: "https://ai.example.com/credits" },
  signIn: { token: "none" },
  beginSignIn: { issuer: "https://login.example.com" },
  completeSignIn: { query: "code=none&state=none" },
  createOperator: { name: "Mine", role: "auditor" },
  blockIdentity: { issuer: "https://login.example.com", subject: "nobody" },
  unblockIdentity: { issuer: "https://login.example.com", subject: "nobody" },
  createOrganization: { name: "Mine" },
  changeOrganization: { status: "paused" },
  changeTokenBounds: { max_count: 1_000, models: null, max_cap: null, max_days: null },
  changeToken: { name: "Mine" },
  rotateToken: {},
  createGrant: { amount: 1 },
  createRevocation: { amount: 1 },
  createCredit: { amount: 1 },
  requestCredits: { amount: 1 },
  createAllowance: { amount: 1 },
  createBudget: { name: "Team", window: "day", amount: 1 },
  changeBudget: { name: "Team" },
  raiseBudget: { amount: 1 },
  createReceiver: { name: "Ops", format: "webhook", target: TARGET },
  changeReceiver: { name: "Ops" },
  resumeRoute: { route: "sandbox/echo" },
};
const bodyOf = ({ operationId }: AdminEndpoint, { id }: Organization) => {
  if (operationId === "redeemVoucher") return { code: codes.get(id) ?? "none" };
  return operationId === "createToken" ? { organization_id: id, name: "New" } : (bodies[operationId] ?? {});
};

/** Queries of operations that need one. A search of a member for what belongs to others must find nothing. */
const queries: Record<string, () => string> = {
  search: () => `?query=${foreign.tokenId}`,
  sumRequests: () => "?by=organization",
  showLatencies: () => "?model=sandbox%2Fecho",
};
const queryOf = ({ operationId }: AdminEndpoint) => queries[operationId]?.() ?? "";

function ask(client: AdminClient, endpoint: AdminEndpoint, organization: Organization) {
  const [, kind = ""] = endpoint.path.split("/");
  const path = endpoint.path
    .replace(/:id/, () => idsOf[kind]?.(organization) ?? "none")
    .replace(/:budget_id/, budgetIds.get(organization.id) ?? "none")
    .replace(/:\w+/, "none");
  const body = endpoint.method === "GET" ? undefined : bodyOf(endpoint, organization);
  return client.call(endpoint.method, `${path}${queryOf(endpoint)}`, body);
}

const isFor = (role: "guest" | Role, { permission }: AdminEndpoint) => rolesWith(permission).includes(role);
const named = (filter: (endpoint: AdminEndpoint) => boolean) =>
  adminEndpoints.filter(filter).map((endpoint) => [`${endpoint.method} ${endpoint.path}`, endpoint] as const);
test("every operation has a path and a name of its own, and few are open to guests", () => {
  const paths = adminEndpoints.map(({ method, path }) => `${method} ${path}`);
  expect(new Set(paths).size).toBe(paths.length);
  expect(new Set(adminEndpoints.map(({ operationId }) => operationId)).size).toBe(paths.length);
  const open = adminEndpoints.filter((endpoint) => isFor("guest", endpoint)).map(({ operationId }) => operationId);
  const signsIn = ["beginSignIn", "completeSignIn", "showSession", "signIn", "signOut"];
  expect(open.sort()).toEqual(["createPlaygroundToken", "showService", ...signsIn].sort());
});

test("every operation is in the OpenAPI document", async () => {
  const document = await (await fetch(`${service.url}/openapi.json`)).json();
  const { paths } = document as { paths: Record<string, Record<string, { operationId: string }>> };
  for (const { method, path, operationId } of adminEndpoints) {
    const shown = paths[`/admin/v1${path.replace(/:(\w+)/g, "{$1}")}`]?.[method.toLowerCase()];
    expect([operationId, shown?.operationId]).toEqual([operationId, operationId]);
  }
});

describe("a caller without a session", () => {
  test.each(named((endpoint) => !isFor("guest", endpoint)))("%s: 401", async (_, endpoint) => {
    const { status, body } = await ask(new AdminClient(service, FROM_CONSOLE), endpoint, mine);
    expect([status, body]).toEqual([401, { error: expect.objectContaining({ code: "missing_token" }) }]);
  });
});

describe.each(ORGANIZATION_ROLES)("a caller with the role %s", (role) => {
  const client = () => clients.get(role) ?? new AdminClient(service, {});
  /** Returns the organization, with a token that the caller has created if they may. */
  const own = async () => {
    if (!rolesWith("tokens:write").includes(role)) return mine;
    const { body } = await client().call<{ id: string }>("POST", "/tokens", { organization_id: mine.id, name: "Own" });
    return { ...mine, tokenId: body.id };
  };
  const isOwn = (endpoint: AdminEndpoint) => isFor(role, endpoint) && !isFor("guest", endpoint);

  test.each(named((endpoint) => !isFor(role, endpoint)))("%s: 403, and nothing is changed", async (_, endpoint) => {
    for (const organization of [mine, foreign]) {
      const { status, body } = await ask(client(), endpoint, organization);
      expect([status, body]).toEqual([403, { error: expect.objectContaining({ code: "insufficient_role" }) }]);
    }
  });

  test.each(named((endpoint) => isOwn(endpoint) && endpoint.path.includes(":")))(
    "%s: takes their own, and answers 404 for those of others, as if they did not exist",
    async (_, endpoint) => {
      const [other, absent] = await Promise.all([
        ask(client(), endpoint, foreign),
        ask(client(), endpoint, { id: "org_none", tokenId: "tok_none", token: "" }),
      ]);
      expect(other.status).toBe(404);
      expect(other.body).toEqual(absent.body);
      const { status, body } = await ask(client(), endpoint, await own());
      expect(status).toBe(endpoint.answer.status);
      expect(JSON.stringify(body ?? null)).not.toContain(NOTE);
      if (endpoint.method !== "GET" && !LEAVES_PARTS.has(endpoint.operationId)) await makeParts(mine);
    },
  );

  test.each(named((endpoint) => isOwn(endpoint) && !endpoint.path.includes(":")))(
    "%s: tells of their organization alone",
    async (_, endpoint) => {
      const plain = await ask(client(), endpoint, mine);
      expect(plain.status).toBe(endpoint.answer.status);
      const text = JSON.stringify(plain.body);
      const parts = [budgetIds, receiverIds, deliveryIds].map((ids) => ids.get(foreign.id));
      for (const secret of [foreign.id, foreign.tokenId, mine.token, FOREIGN_CREDITS, NOTE, ...parts])
        expect(text).not.toContain(secret);
      const { method, path, query, body } = endpoint;
      const input = (query ?? body) as { properties?: object } | undefined;
      if (!Object.hasOwn(input?.properties ?? {}, "organization_id")) return;
      const ofForeign = { organization_id: foreign.id };
      const asked =
        method === "GET"
          ? client().call(
              "GET",
              `${path}${queryOf(endpoint) || "?"}&${new URLSearchParams(ofForeign)}`.replace("?&", "?"),
            )
          : client().call(method, path, { ...bodyOf(endpoint, mine), ...ofForeign });
      expect((await asked).status).toBe(404);
    },
  );
});

/** Returns a schema that refuses fields that it does not name, so that no column of a row is answered by mistake. */
function withoutOthers(schema: unknown): object {
  return JSON.parse(JSON.stringify(schema), (_, value) =>
    value?.type === "object" && value.properties ? { ...value, additionalProperties: false } : value,
  );
}

describe("the operator", () => {
  test.each(named((endpoint) => endpoint.method === "GET" && !isFor("guest", endpoint)))("%s", async (_, endpoint) => {
    const { schema, contentType } = endpoint.answer;
    const check = new Ajv({ strict: false }).compile(contentType === undefined ? withoutOthers(schema) : {});
    for (const organization of [mine, foreign]) {
      const { status, body } = await ask(operator(service), endpoint, organization);
      expect(status).toBe(200);
      check(body);
      expect(check.errors).toBeNull();
    }
    if (!endpoint.path.includes(":")) return;
    const absent = { id: "org_none", tokenId: "tok_none", token: "" };
    expect((await ask(operator(service), endpoint, absent)).status).toBe(404);
  });
});

describe("input", () => {
  test.each(named(({ query, body }) => query !== undefined || body !== undefined))(
    "%s: a field that is not known is refused by its name",
    async (_, endpoint) => {
      const isQuery = endpoint.body === undefined;
      const path = endpoint.path.replace(":id", mine.id);
      const sent = { ...bodyOf(endpoint, mine), evil: 1 };
      const client = isFor("operator", endpoint) ? operator(service) : clients.get("owner");
      const { status, body } =
        (await client?.call(
          endpoint.method,
          isQuery ? `${path}${`${queryOf(endpoint) || "?"}&evil=1`.replace("?&", "?")}` : path,
          isQuery ? undefined : sent,
        )) ?? {};
      const error = { code: "unknown_parameter", param: "evil", message: expect.stringContaining("evil") };
      expect([status, body]).toEqual([400, { error: expect.objectContaining(error) }]);
    },
  );

  test("a POST of an operation without a body may state the type of one, and one that needs a body may not be empty", async () => {
    const post = (path: string) => operator(service).call("POST", path, "");
    const { tokenId } = await makeOrganization(service, "1");
    expect((await post(`/tokens/${tokenId}/revoke`)).status).toBe(200);
    expect(await post("/organizations")).toMatchObject({ status: 400, body: { error: { code: "invalid_json" } } });
  });

  test("text that the store cannot keep is refused, and no text can become a header", async () => {
    const evil = "a%00b";
    for (const path of [
      `/tokens?search=${evil}`,
      `/tokens/${evil}`,
      `/requests?model=${evil}`,
      `/audit?action=${evil}`,
    ]) {
      expect([path, (await operator(service).call("GET", path)).status]).toEqual([path, 400]);
    }
    for (const name of ["a\0b", "a\r\nset-cookie: a=b"]) {
      expect((await operator(service).call("POST", "/organizations", { name })).status).toBe(400);
    }
    const split = await operator(service).call("GET", `/organizations/${mine.id}%0d%0aset-cookie:%20a=b/statement.csv`);
    expect([split.status, split.headers.get("set-cookie")]).toEqual([404, null]);
  });

  test.each(named(({ query }) => Object.hasOwn((query as { properties?: object })?.properties ?? {}, "limit")))(
    "%s: a limit or a cursor that is none is refused",
    async (_, { path }) => {
      for (const query of ["limit=0", "limit=201", "limit=1.5", "limit=x", "limit=1&limit=2", "cursor="]) {
        const { status } = await operator(service).call("GET", `${path.replace(":id", mine.id)}?${query}`);
        expect([query, status]).toEqual([query, 400]);
      }
      // The counters of a budget are in the order of their values, and any text is a position among them.
      for (const cursor of path.endsWith("/:budget_id") ? [] : ["abc", "{}", "99999", "idn_", "idn_A"]) {
        const sent = `${path.replace(":id", mine.id)}?cursor=${encodeURIComponent(cursor)}`;
        const { status, body } = await operator(service).call<{ error: unknown }>("GET", sent);
        const message = "Invalid 'cursor': use the `next_cursor` of the previous page.";
        expect([cursor, status, body.error]).toEqual([cursor, 400, expect.objectContaining({ message })]);
      }
    },
  );

  test("names and notes that are invisible or that reverse the text around them are refused", async () => {
    const client = operator(service);
    const own = `/organizations/${mine.id}`;
    const sent: [string, string, object][] = [
      ["/organizations", "name", {}],
      ["/tokens", "name", { organization_id: mine.id }],
      ["/operators", "name", { role: "operator" }],
      [`${own}/budgets`, "name", { amount: 1, window: "day", selector: {} }],
      ["/receivers", "name", { format: "webhook", target: "https://example.com/" }],
      [`${own}/grants`, "reference", { amount: 1 }],
      [`${own}/allowances`, "reference", { amount: 1 }],
      [`${own}/revocations`, "note", { amount: 1 }],
      [`${own}/credits`, "note", { amount: 1 }],
    ];
    for (const [path, field, body] of sent) {
      for (const text of ["   ", "\u200b\u200b\u200b", "\u2800", "\u202emoc.live", "a\u2066b", "a\u2028b"]) {
        const { status, body: answer } = await client.call<{ error: unknown }>("POST", path, {
          ...body,
          [field]: text,
        });
        const error = { code: "invalid_value", param: field };
        expect([path, text, status, answer.error]).toEqual([path, text, 400, expect.objectContaining(error)]);
      }
    }
    for (const name of [
      "\u05e9\u05dc\u05d5\u05dd",
      "\ud83d\udc69\u200d\ud83d\udcbb team",
      "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    ]) {
      expect([name, (await client.call("POST", "/organizations", { name })).status]).toEqual([name, 201]);
    }
  });

  test("an id of any length is an id that does not exist", async () => {
    for (const length of [100, 101, 5_000]) {
      const { status } = await operator(service).call("GET", `/organizations/${"x".repeat(length)}`);
      expect([length, status]).toEqual([length, 404]);
    }
  });
});
