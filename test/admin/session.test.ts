import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, cookieOf, FROM_CONSOLE, firstAdminToken, operator, signIn } from "../support/admin.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

/** A revocation is in force on a single node after so long. */
const IN_FORCE_MS = 1_000;

let service: RunningService;
let owner: Organization;
let adminToken: string;

beforeAll(async () => {
  // X-Forwarded-For is believed, so that each case may come from an address of its own.
  service = await startService({
    config: { server: { trustProxy: "127.0.0.1" } },
    environment: { LOG_LEVEL: "debug" },
  });
  owner = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
  adminToken = firstAdminToken(service);
});
afterAll(() => service?.end());

let addresses = 0;
/** A browser at an address without any sign-in attempts. */
const browser = (headers: Record<string, string> = {}): AdminClient =>
  new AdminClient(service, { ...FROM_CONSOLE, "x-forwarded-for": `10.0.0.${++addresses}`, ...headers });
const codeOf = ({ body }: { body: Record<string, unknown> }) => (body.error as { code: string } | undefined)?.code;

describe("signing in", () => {
  test("a request without a session gets an empty session", async () => {
    const { status, body } = await browser().call("GET", "/session");
    expect([status, body.role]).toEqual([200, null]);
    expect((await browser().call("GET", "/organizations")).status).toBe(401);
  });

  test("the operator signs in with the admin token and signs out", async () => {
    const answer = await browser().call("POST", "/session", { token: adminToken });
    expect(answer.body).toMatchObject({ role: "operator", organization: null, may_complete: true });
    const signedIn = browser({ cookie: cookieOf(answer) });
    expect((await signedIn.call("GET", "/session")).body.role).toBe("operator");
    expect((await signedIn.call("GET", "/organizations")).status).toBe(200);
    const out = await signedIn.call("DELETE", "/session");
    expect([out.status, out.headers.get("set-cookie")]).toEqual([204, expect.stringContaining("Max-Age=0")]);
    expect((await signedIn.call("GET", "/session")).body.role).toBeNull();
    expect((await signedIn.call("GET", "/organizations")).status).toBe(401);
  });

  test("a member signs in with a token that has console:read and sees their organization", async () => {
    const member = await signIn(service, owner.token);
    const { body } = await member.call("GET", "/session");
    expect(body).toMatchObject({
      role: "member",
      organization: { id: owner.id, name: "Test" },
      token: { id: owner.tokenId },
    });
    expect(JSON.stringify(body)).not.toContain(owner.token.slice(12));
  });

  const refused: [string, () => string | Promise<string>, number, string][] = [
    ["a mistyped admin token", () => `${firstAdminToken(service).slice(0, -1)}!`, 401, "invalid_token"],
    ["no token at all", () => "", 400, "invalid_value"],
    [
      "a token with the default scopes",
      async () => (await makeToken(service, owner.id)).token,
      403,
      "insufficient_scope",
    ],
    [
      "a guest's token",
      async () => (await makeToken(service, "org_playground")).token,
      403,
      "usage_not_available_for_playground",
    ],
  ];
  test.each(refused)("%s is refused", async (_, token, status, code) => {
    const answer = await browser().call("POST", "/session", { token: await token() });
    expect([answer.status, codeOf(answer), answer.headers.get("set-cookie")]).toEqual([status, code, null]);
  });

  test("ten failed sign-ins per minute are allowed from one address, and a valid token signs in after any number", async () => {
    const guesser = browser();
    const statuses = [];
    for (let tries = 0; tries < 11; tries += 1) {
      statuses.push((await guesser.call("POST", "/session", { token: `tg-admin-${"a".repeat(49)}` })).status);
    }
    expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429]);
    expect((await guesser.call("POST", "/session", { token: adminToken })).status).toBe(200);
    expect((await guesser.call("POST", "/session", { token: owner.token })).status).toBe(200);
    expect((await guesser.call("POST", "/session", { token: "wrong" })).status).toBe(429);
  });

  test("guesses from one IPv6 /64 network are counted together, and IPv4-mapped addresses as IPv4", async () => {
    const guess = async (address: string) => {
      const guesser = browser({ "x-forwarded-for": address });
      return (await guesser.call("POST", "/session", { token: `tg-admin-${"c".repeat(49)}` })).status;
    };
    const spellings: [string[], string][] = [
      [Array.from({ length: 11 }, (_, host) => `2001:db8:5:6:${host}::${host}`), "2001:db8:5:7::1"],
      [["192.0.2.77", ...Array.from({ length: 10 }, () => "::ffff:c000:24d")], "192.0.2.78"],
    ];
    for (const [sameCaller, otherCaller] of spellings) {
      const statuses = [];
      for (const address of sameCaller) statuses.push(await guess(address));
      expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429]);
      expect(await guess(otherCaller)).toBe(401);
    }
  });

  test("behind a known number of proxies, addresses that the client itself sent are ignored", async () => {
    const proxied = await startService({ config: { server: { trustProxy: 1 } } });
    try {
      const guess = async (forwarded: string) => {
        const guesser = new AdminClient(proxied, { ...FROM_CONSOLE, "x-forwarded-for": forwarded });
        return (await guesser.call("POST", "/session", { token: `tg-admin-${"d".repeat(49)}` })).status;
      };
      const statuses = [];
      for (let tries = 0; tries < 11; tries += 1) statuses.push(await guess(`203.0.113.${tries}, 198.51.100.9`));
      expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429]);
      expect(await guess("203.0.113.0, 198.51.100.10")).toBe(401);
    } finally {
      await proxied.end();
    }
  });

  test("wrong admin tokens in the header are counted as well, and never refuse the valid one", async () => {
    const address = { "x-forwarded-for": "198.51.100.33" };
    const guesser = browser({ ...address, authorization: `Bearer tg-admin-${"b".repeat(49)}` });
    const statuses = new Set<number>();
    for (let tries = 0; tries < 11; tries += 1) statuses.add((await guesser.call("GET", "/organizations")).status);
    expect([...statuses]).toEqual([401, 429]);
    const operator = browser({ ...address, authorization: `Bearer ${adminToken}` });
    expect((await operator.call("GET", "/organizations")).status).toBe(200);
  });
});

describe("the session's cookie", () => {
  test("the cookie is not accessible to scripts, other sites and plain HTTP", async () => {
    const plain = await browser().call("POST", "/session", { token: adminToken });
    expect(plain.headers.get("set-cookie")).toMatch(
      /^tollgate_session=[0-9A-Za-z]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict$/,
    );
    const secure = await browser({ "x-forwarded-proto": "https" }).call("POST", "/session", { token: adminToken });
    expect(secure.headers.get("set-cookie")).toMatch(
      /^__Host-tollgate_session=[0-9A-Za-z]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict; Secure$/,
    );
  });

  test("a cookie with a chosen value never becomes a session", async () => {
    const chosen = `tollgate_session=${"f".repeat(43)}`;
    const answer = await browser({ cookie: chosen }).call("POST", "/session", { token: adminToken });
    expect(cookieOf(answer)).not.toBe(chosen);
    expect((await browser({ cookie: chosen }).call("GET", "/session")).body.role).toBeNull();
    const both = `${chosen}; ${cookieOf(answer)}`;
    expect((await browser({ cookie: both }).call("GET", "/session")).body.role).toBeNull();
  });

  test("a second sign-in ends the earlier session", async () => {
    const first = cookieOf(await browser().call("POST", "/session", { token: adminToken }));
    await browser({ cookie: first }).call("POST", "/session", { token: owner.token });
    expect((await browser({ cookie: first }).call("GET", "/session")).body.role).toBeNull();
  });

  test("a cookie with an unknown value has no session", async () => {
    for (const value of ["", "x", "a".repeat(44), "a b".repeat(14), "%0d%0aset-cookie: a=b", "é".repeat(43)]) {
      const cookie = Buffer.from(`tollgate_session=${value}`).toString("latin1");
      expect((await browser({ cookie }).call("GET", "/session")).body.role).toBeNull();
    }
  });

  test("the cookie gives no access under /v1", async () => {
    const { headers } = await signIn(service, owner.token);
    const answer = await send(service, "/v1/models", null, undefined, { headers });
    expect(answer.status).toBe(401);
  });

  test("the session ends with its token", async () => {
    const { token, tokenId } = await makeToken(service, owner.id, { scopes: MEMBER_SCOPES });
    const member = await signIn(service, token);
    expect((await member.call("GET", "/organizations")).status).toBe(200);
    await service.tollgate("token", "revoke", tokenId);
    expect((await member.call("GET", "/organizations")).status).toBe(401);
  });
});

describe("a request from another site", () => {
  const refused: [string, Record<string, string>][] = [
    ["without the console's header", { "x-tollgate-console": "" }],
    ["of another site", { "sec-fetch-site": "cross-site" }],
    ["of a sibling under the same domain", { "sec-fetch-site": "same-site" }],
    ["of another origin", { origin: "https://evil.example" }],
    ["of a sandboxed page", { origin: "null" }],
    ["that was typed in", { "sec-fetch-site": "none" }],
  ];
  test.each(refused)("%s changes nothing", async (_, headers) => {
    const { headers: session } = await signIn(service, adminToken);
    const answer = await browser({ ...session, ...headers }).call("POST", "/organizations", { name: "Forged" });
    expect([answer.status, codeOf(answer)]).toEqual([403, "csrf_check_failed"]);
  });

  test("a request from another site can neither sign in nor sign out", async () => {
    const member = await signIn(service, owner.token);
    for (const [method, body] of [
      ["POST", { token: adminToken }],
      ["DELETE", undefined],
    ] as const) {
      const answer = await browser({ ...member.headers, origin: "https://evil.example" }).call(
        method,
        "/session",
        body,
      );
      expect(answer.status).toBe(403);
    }
    expect((await member.call("GET", "/session")).body.role).toBe("member");
  });

  test("a request from another site reads nothing, and no CORS header allows it", async () => {
    const { headers } = await signIn(service, adminToken);
    const answer = await browser({ ...headers, "sec-fetch-site": "cross-site" }).call("GET", "/organizations");
    expect(answer.status).toBe(403);
    const preflight = await fetch(`${service.url}/admin/v1/organizations`, {
      method: "OPTIONS",
      headers: { origin: "https://evil.example", "access-control-request-method": "POST" },
    });
    expect(preflight.status).toBe(405);
    expect([...preflight.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  });

  test("requests of the console are accepted, and scripts need no header", async () => {
    const { host } = new URL(service.url);
    const { headers } = await signIn(service, adminToken);
    const own = { origin: `http://${host}`, "sec-fetch-site": "same-origin" };
    expect((await browser({ ...headers, ...own }).call("POST", "/organizations", { name: "Own" })).status).toBe(201);
    expect((await operator(service).call("POST", "/organizations", { name: "Script" })).status).toBe(201);
  });
});

test("a new admin token ends the earlier one with its sessions and playground tokens", async () => {
  const session = await signIn(service, adminToken);
  const minted: string[] = [];
  for (const client of [session, operator(service)]) {
    const { body } = await client.call("POST", "/playground/token", { organization_id: owner.id });
    minted.push(String(body.token));
    expect((await send(service, "/v1/models", String(body.token))).status).toBe(200);
  }
  expect(new Set(minted).size).toBe(2);
  const { token } = await service.tollgate<{ token: string }>("admin", "token");
  expect(token).toMatch(/^tg-admin-[0-9A-Za-z]{49}$/);
  await new Promise((resolve) => setTimeout(resolve, IN_FORCE_MS));
  for (const short of minted) expect((await send(service, "/v1/models", short)).status).toBe(401);
  expect((await session.call("GET", "/organizations")).status).toBe(401);
  expect((await browser({ authorization: `Bearer ${adminToken}` }).call("GET", "/organizations")).status).toBe(401);
  expect((await browser({ authorization: `Bearer ${token}` }).call("GET", "/organizations")).status).toBe(200);
  const audit = await browser({ authorization: `Bearer ${token}` }).call("GET", "/audit?action=admin_token.replace");
  expect(audit.body.data).toMatchObject([{ actor: { kind: "command" }, after: { prefix: token.slice(0, 15) } }]);
});

test("sign-ins, refused ones too, and sign-outs are recorded with their address and without the secret", async () => {
  // One of its own: a node records so many refused ones a minute, and those of the other cases would count.
  const fresh = await startService();
  try {
    const { id, token, tokenId } = await makeOrganization(fresh, "10", { scopes: MEMBER_SCOPES });
    const { token: bare, tokenId: bareId } = await makeToken(fresh, id);
    const recorded = async (action: string) =>
      (await operator(fresh).call("GET", `/audit?action=${action}`)).body.data as Record<string, unknown>[];
    const guess = `tg-admin-${"z".repeat(49)}`;
    const stranger = new AdminClient(fresh, FROM_CONSOLE);
    await stranger.call("POST", "/session", { token: guess });
    await new AdminClient(fresh, { authorization: `Bearer ${guess}` }).call("GET", "/audit");
    await stranger.call("POST", "/session", { token: bare });
    const actor = { kind: "anonymous", id: null, address: "127.0.0.1" };
    const unknown = { actor, subject_id: null, after: { reason: "unknown_token", token: "tg-admin-zzzzzz" } };
    const refused = { reason: "insufficient_scope", token: bare.slice(0, 12) };
    const failed = await recorded("session.sign_in_failed");
    expect(failed).toMatchObject([
      { actor, organization_id: id, subject_id: bareId, after: refused },
      unknown,
      unknown,
    ]);
    for (const secret of [guess, bare]) expect(JSON.stringify(failed)).not.toContain(secret.slice(16));
    const member = await signIn(fresh, token);
    await member.call("POST", "/playground/token", {});
    await member.call("DELETE", "/session");
    const change = {
      actor: { kind: "member", id: tokenId, address: "127.0.0.1" },
      organization_id: id,
      subject_id: tokenId,
    };
    for (const action of ["session.sign_in", "playground_token.create", "session.sign_out"]) {
      expect(await recorded(action)).toMatchObject([change]);
    }
  } finally {
    await fresh.end();
  }
});

test("the log and the audit log contain no secret", async () => {
  const { token } = await service.tollgate<{ token: string }>("admin", "token");
  const signedIn = await browser().call("POST", "/session", { token });
  const secret = cookieOf(signedIn).split("=")[1] ?? "none";
  await browser({ cookie: cookieOf(signedIn), authorization: "Bearer tg-admin-nonsense" }).call("GET", "/audit");
  const audit = await browser({ authorization: `Bearer ${token}` }).call("GET", "/audit?limit=200");
  const log = service
    .output()
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .join("\n");
  for (const text of [JSON.stringify(audit.body), log]) {
    for (const one of [adminToken, token, owner.token, secret]) expect(text).not.toContain(one.slice(-30));
  }
});
