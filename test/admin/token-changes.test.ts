import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator, signIn } from "../support/admin.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const IN_FORCE_MS = 1_000;

let service: RunningService;
let owner: Organization;
beforeAll(async () => {
  service = await startService();
  owner = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
});
afterAll(() => service?.end());

const admin = () => operator(service);
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const complete = (token: string) => {
  const request = { model: "sandbox/echo", messages: [{ role: "user", content: "hello there" }] };
  return send(service, "/v1/chat/completions", token, request);
};
const codeOf = async (answer: Response) => ((await answer.json()) as { error?: { code: string } }).error?.code;

interface Listed {
  data: Record<string, unknown>[];
}

test("a changed token is in force within a second, also in what it may no longer do", async () => {
  const { tokenId, token } = await makeToken(service, owner.id, { cap: 5 });
  expect((await complete(token)).status).toBe(200);
  const change = (body: object) => admin().call("PATCH", `/tokens/${tokenId}`, body);
  const terms = { name: "narrow", models: ["sandbox/story"], limits: { concurrent_requests: 3 } };
  expect(await change(terms)).toMatchObject({ status: 200, body: { ...terms, id: tokenId, cap: { amount: 5 } } });
  await wait(IN_FORCE_MS);
  const refused = await complete(token);
  expect([refused.status, await codeOf(refused)]).toEqual([403, "model_not_allowed"]);
  const spent = ((await admin().call("GET", `/tokens/${tokenId}`)).body.cap as { spent: number }).spent;
  expect(spent).toBeGreaterThan(0);
  await change({ models: null, limits: null, cap: 0.000001 });
  await wait(IN_FORCE_MS);
  const overspent = await complete(token);
  expect([overspent.status, await codeOf(overspent)]).toEqual([402, "insufficient_credits"]);
  const { body } = await change({ cap: null, scopes: ["models:read"], expires_at: "2090-01-01T00:00:00.000Z" });
  expect(body).toMatchObject({ cap: null, models: null, limits: null, scopes: ["models:read"], name: "narrow" });
  await wait(IN_FORCE_MS);
  const unscoped = await complete(token);
  expect([unscoped.status, await codeOf(unscoped)]).toEqual([403, "insufficient_scope"]);
  // A cap that is set later counts what was spent without one.
  expect((await change({ cap: 2, scopes: null })).body).toMatchObject({ cap: { amount: 2, spent, held: 0 } });
  const { body: audit } = await admin().call<Listed>("GET", `/audit?organization_id=${owner.id}&action=token.change`);
  expect(audit.data[0]).toMatchObject({
    ...{ subject_id: tokenId, actor: { kind: "operator" } },
    before: { cap: null, scopes: ["models:read"] },
    after: { cap: "2", scopes: ["chat.completions:write", "models:read", "usage:read"] },
  });
});

test.each([
  [{}, null],
  [{ name: "" }, "name"],
  [{ cap: 0 }, "cap"],
  [{ scopes: [] }, "scopes"],
  [{ expires_at: "2001-01-01T00:00:00Z" }, "expires_at"],
  [{ organization_id: "org_playground" }, "organization_id"],
  [{ limits: { requests_per_minute: 0 } }, "limits.requests_per_minute"],
  [{ pinned: {} }, "pinned"],
  [{ pinned: { team: "" } }, "pinned.team"],
  [{ pinned: { team: 1 } }, "pinned.team"],
  [{ pinned: { team: "x".repeat(513) } }, "pinned.team"],
  [{ pinned: { requested_model: "x" } }, "pinned"],
  [{ pinned: { "a\nb": "x" } }, "pinned"],
  [{ pinned: Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`key${index}`, "x"])) }, "pinned"],
])("a change to %j is refused, naming %s", async (body, param) => {
  const answer = await admin().call("PATCH", `/tokens/${owner.tokenId}`, body);
  expect([answer.status, (answer.body.error as { param: string | null }).param]).toEqual([400, param]);
});

describe("pinned metadata", () => {
  const ask = async (token: string, metadata: object) => {
    const request = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }], metadata };
    const answer = await send(service, "/v1/chat/completions", token, request);
    return { answer, error: ((await answer.json()) as { error?: { code: string; param: string } }).error };
  };

  test("a request that states another value is refused with the field, and others are recorded with the value", async () => {
    const pinned = { team: "red", user: "ada", ...JSON.parse('{ "__proto__": "x" }') };
    const { tokenId, token } = await makeToken(service, owner.id, { pinned });
    for (const key of ["team", "user"]) {
      const { answer, error } = await ask(token, { [key]: "blue" });
      expect([answer.status, error]).toMatchObject([400, { code: "invalid_value", param: `metadata.${key}` }]);
    }
    const { answer } = await ask(token, { team: "red", note: "mine" });
    expect(answer.status).toBe(200);
    const { body: listed } = await admin().call<Listed>("GET", `/requests?token_id=${tokenId}&status=complete`);
    const { body } = await admin().call("GET", `/requests/${listed.data[0]?.id}`);
    expect(listed.data).toHaveLength(1);
    expect(JSON.stringify(body.metadata)).toBe(JSON.stringify({ team: "red", note: "mine", ...pinned }));
  });

  test("it is changed and removed within a second, goes to successors, and is in the audit log", async () => {
    const { tokenId, token } = await makeToken(service, owner.id, { pinned: { team: "red" } });
    const change = (pinned: object | null) => admin().call("PATCH", `/tokens/${tokenId}`, { pinned });
    expect((await change({ team: "blue" })).body).toMatchObject({ id: tokenId, pinned: { team: "blue" } });
    await wait(IN_FORCE_MS);
    expect([
      (await ask(token, { team: "red" })).error?.param,
      (await ask(token, { team: "blue" })).answer.status,
    ]).toEqual(["metadata.team", 200]);
    const rotated = await admin().call<{ secret: string }>("POST", `/tokens/${tokenId}/rotate`, {});
    expect(rotated.body).toMatchObject({ pinned: { team: "blue" } });
    expect((await ask(rotated.body.secret, { team: "red" })).error?.param).toBe("metadata.team");
    expect((await change(null)).body.pinned).toBeNull();
    await wait(IN_FORCE_MS);
    expect((await ask(token, { team: "red" })).answer.status).toBe(200);
    const { body: audit } = await admin().call<Listed>("GET", `/audit?organization_id=${owner.id}&limit=20`);
    const ofToken = audit.data.filter(({ subject_id, action }) => subject_id === tokenId && action !== "token.rotate");
    expect(ofToken).toMatchObject([
      { action: "token.change", before: { pinned: { team: "blue" } }, after: { pinned: null } },
      { action: "token.change", before: { pinned: { team: "red" } }, after: { pinned: { team: "blue" } } },
      { action: "token.create", after: { pinned: { team: "red" } } },
    ]);
  });

  test("commands pin, replace and remove it", async () => {
    const words = ["--org", owner.id, "--pin", "team=red", "user=a=b"];
    const made = await service.tollgate<{ id: string }>("token", "create", ...words);
    expect(made).toMatchObject({ pinned: { team: "red", user: "a=b" } });
    const update = (...more: string[]) => service.tollgate("token", "update", made.id, ...more);
    expect(await update("--pin", "team=blue")).toMatchObject({ pinned: { team: "blue" } });
    expect(await update("--name", "same")).toMatchObject({ pinned: { team: "blue" } });
    expect(await update("--no-pin")).toMatchObject({ pinned: null });
    for (const [pins, message] of [
      [["team"], '--pin is "team", but must be KEY=VALUE.'],
      [["team=a", "team=b"], "--pin has two values of one key."],
      [["requested_model=x"], "a key of 1 to 64 characters, and not requested_model"],
      [Array.from({ length: 17 }, (_, index) => `key${index}=x`), "pinned is 17 keys, but must be 16 or fewer."],
    ] as const) {
      await expect(update("--pin", ...pins)).rejects.toThrow(message);
      await expect(service.tollgate("token", "create", "--org", owner.id, "--pin", ...pins)).rejects.toThrow(message);
    }
  });
});

test("a revoked token, an unknown one and a member's own are not changed", async () => {
  const { tokenId } = await makeToken(service, owner.id);
  const member = await signIn(service, owner.token);
  expect((await member.call("PATCH", `/tokens/${owner.tokenId}`, { cap: null })).status).toBe(403);
  await admin().call("POST", `/tokens/${tokenId}/revoke`);
  const ended = await admin().call("PATCH", `/tokens/${tokenId}`, { name: "again" });
  expect([ended.status, ended.body.error]).toMatchObject([409, { code: "token_ended" }]);
  expect((await admin().call("PATCH", "/tokens/tok_none", { name: "x" })).status).toBe(404);
});
