import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { PERMISSIONS, ROLES, rolesWith } from "../../src/api/admin/roles.ts";
import { type AdminEndpoint, adminEndpoints } from "../../src/http/admin/endpoint.ts";
import { AdminClient, type Answer, FROM_CONSOLE, firstAdminToken, operator, signIn } from "../support/admin.ts";
import { type IdentityProvider, sessionCookie, signInAt, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, MEMBER_SCOPES, makeOrganization, type RunningService, startService } from "../support/service.ts";
import { TABLE } from "./role-table.ts";

let service: RunningService;
let provider: IdentityProvider;
let memberToken: string;

beforeAll(async () => {
  const port = await freePort();
  provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
  service = await startService({ config: { playground: { openToGuests: true } }, port });
  const { id: organization, token } = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
  memberToken = token;
  const roles = ROLES_BY_CLAIMS.map((role) => ({ when: { sub: role }, role, organization }));
  const config = { playground: { openToGuests: true }, identity: { issuers: [{ ...provider.settings, roles }] } };
  await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify(config));
  await vi.waitFor(() => expect(service.output()).toContain("the configuration was reloaded"), LONG);
});
afterAll(async () => {
  await service?.end();
  await provider?.close();
});

const LONG = { timeout: 60_000 };
/** The roles that a token of an organization does not give. The accounts of the provider have their names. */
const ROLES_BY_CLAIMS = ["owner", "developer", "billing"] as const;

interface Created {
  id: string;
  name: string;
  secret: string;
}

async function create(name: string, role: string): Promise<Created> {
  const { status, body } = await operator(service).call<Created>("POST", "/operators", { name, role });
  expect([status, body]).toEqual([201, expect.objectContaining({ object: "operator", name, role, status: "active" })]);
  return body;
}
const withToken = (token: string) => new AdminClient(service, { authorization: `Bearer ${token}` });
const codeOf = ({ body }: Pick<Answer, "body">) => (body as { error?: { code: string } }).error?.code;

/** Calls an operation on resources that do not exist; returns whether the caller's role permits it. */
async function isPermitted(client: AdminClient, { method, path }: AdminEndpoint): Promise<boolean> {
  const answer = await client.call(method, path.replaceAll(/:\w+/g, "none"), method === "GET" ? undefined : {});
  const code = codeOf(answer);
  const isRefused = [401, 403].includes(answer.status) && ["missing_token", "insufficient_role"].includes(code ?? "");
  // A refusal by role comes before every other error, and names what is missing.
  if (code === "insufficient_role")
    expect(answer.body).toMatchObject({ error: { message: /requires the permission/ } });
  return !isRefused;
}

async function tableOf(callers: Record<string, () => Promise<AdminClient>>): Promise<string> {
  const rows = [["operation", ...Object.keys(callers)]];
  const signInAll = () => Promise.all(Object.values(callers).map((signInOne) => signInOne()));
  let clients = await signInAll();
  for (const endpoint of adminEndpoints) {
    const row = [endpoint.operationId];
    for (const client of clients) row.push((await isPermitted(client, endpoint)) ? "yes" : "-");
    rows.push(row);
    if (endpoint.operationId === "signOut") clients = await signInAll();
  }
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

test("every operation, called as every role, is permitted or refused as the table says", async () => {
  const [ada, eve] = [await create("Ada", "operator"), await create("Eve", "auditor")];
  const byClaims = (role: (typeof ROLES_BY_CLAIMS)[number]) => async () => {
    const answer = await signInAt(service, provider.issuer, role);
    expect(answer.body.role).toBe(role);
    return new AdminClient(service, { ...FROM_CONSOLE, cookie: sessionCookie(answer) });
  };
  const callers = {
    guest: async () => new AdminClient(service, FROM_CONSOLE),
    operator: () => signIn(service, ada.secret),
    auditor: () => signIn(service, eve.secret),
    owner: byClaims("owner"),
    developer: byClaims("developer"),
    billing: byClaims("billing"),
    member: () => signIn(service, memberToken),
  };
  expect(Object.keys(callers)).toEqual(["guest", ...ROLES]);
  const table = await tableOf(callers);
  expect(table).toBe(TABLE);
});

test("a token in the header has the permissions of its operator", async () => {
  const auditor = await create("Mallory", "auditor");
  const table = await tableOf({ auditor: async () => withToken(auditor.secret) });
  const expected = TABLE.split("\n").map((line) => {
    const [operationId = "", , , may] = line.split(/ +/);
    return [operationId, may];
  });
  expect(table.split("\n").map((line) => line.split(/ +/))).toEqual(expected);
});

describe("an operator", () => {
  test("an operator changes under their own name, which the audit log shows", async () => {
    const { id, name, secret } = await create("Grace", "operator");
    const made = await withToken(secret).call<{ id: string }>("POST", "/organizations", { name: "By Grace" });
    expect(made.status).toBe(201);
    const { body } = await withToken(secret).call<{ data: object[] }>("GET", "/audit?action=organization.create");
    const entry = { subject_id: made.body.id, actor: { kind: "operator", id, name, address: "127.0.0.1" } };
    expect(body.data[0]).toMatchObject(entry);
    const created = await operator(service).call<{ data: object[] }>("GET", "/audit?action=operator.create");
    const byAdmin = { subject_id: id, actor: { kind: "operator", id: "adm_first", name: "admin" } };
    expect(created.body.data[0]).toMatchObject({ ...byAdmin, after: { name, role: "operator" } });
    expect(JSON.stringify(created.body)).not.toContain(secret.slice(12));
  });

  test("grants and sign-ins carry the name too", async () => {
    const { id, secret } = await create("Heidi", "operator");
    const organization = await makeOrganization(service, "1");
    await withToken(secret).call("POST", `/organizations/${organization.id}/grants`, { amount: 1 });
    await signIn(service, secret);
    for (const action of ["credits.grant", "session.sign_in"]) {
      const { body } = await withToken(secret).call<{ data: object[] }>("GET", `/audit?action=${action}&limit=1`);
      expect(body.data[0]).toMatchObject({ action, actor: { kind: "operator", id, name: "Heidi" } });
    }
  });

  test("a revocation ends the token, its sessions and its playground tokens, and a repetition changes nothing", async () => {
    const { id, secret } = await create("Ivan", "operator");
    const session = await signIn(service, secret);
    const organization = await makeOrganization(service, "1");
    const payer = { organization_id: organization.id };
    const short = await session.call<{ token: string }>("POST", "/playground/token", payer);
    const revoked = await operator(service).call("DELETE", `/operators/${id}`);
    expect([revoked.status, revoked.body]).toEqual([200, expect.objectContaining({ id, status: "revoked" })]);
    expect((await withToken(secret).call("GET", "/organizations")).status).toBe(401);
    expect((await session.call("GET", "/organizations")).status).toBe(401);
    await expect(signIn(service, secret)).rejects.toThrow("invalid_token");
    await expect
      .poll(async () => {
        const headers = { authorization: `Bearer ${short.body.token}` };
        return (await fetch(`${service.url}/v1/models`, { headers })).status;
      })
      .toBe(401);
    expect((await operator(service).call("DELETE", `/operators/${id}`)).body).toEqual(revoked.body);
    const { body } = await operator(service).call<{ data: object[] }>("GET", "/audit?action=operator.revoke");
    expect(body.data.filter((entry) => JSON.stringify(entry).includes(id))).toHaveLength(1);
  });

  test("names are unique among those who are not revoked, and are on one line", async () => {
    const { id } = await create("Judy", "auditor");
    const again = () => operator(service).call("POST", "/operators", { name: "Judy", role: "operator" });
    expect(await again()).toMatchObject({ status: 400, body: { error: { code: "invalid_value", param: "name" } } });
    await operator(service).call("DELETE", `/operators/${id}`);
    expect((await again()).status).toBe(201);
    for (const body of [
      { name: "a\nb", role: "auditor" },
      { name: "x", role: "owner" },
      { name: "x" },
      { role: "auditor" },
    ]) {
      expect((await operator(service).call("POST", "/operators", body)).status, JSON.stringify(body)).toBe(400);
    }
  });

  test("a repetition with the same Idempotency-Key creates no second operator and contains no token", async () => {
    const headers = { "idempotency-key": "operator-1" };
    const post = () => operator(service).call("POST", "/operators", { name: "Ken", role: "auditor" }, headers);
    const [first, second] = [await post(), await post()];
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.body).toMatchObject({ id: first.body.id, secret: null, hint: expect.stringContaining("revoke") });
  });
});

test("an auditor sees what operators see, and their session says that they may change nothing", async () => {
  const { secret } = await create("Trent", "auditor");
  const session = await signIn(service, secret);
  const { body } = await session.call<{ permissions: string[] }>("GET", "/session");
  expect(body).toMatchObject({ role: "auditor", organization: null, token: { name: "Trent" }, may_complete: false });
  expect(body.permissions.filter((permission) => !permission.endsWith(":read"))).toEqual(["session:own"]);
  for (const path of ["/organizations", "/models", "/overview", "/audit", "/tokens"]) {
    const asked = [session, operator(service)].map((client) => client.call<{ data?: unknown[] }>("GET", path));
    const [own, full] = await Promise.all(asked);
    expect([own?.status, own?.body.data?.length]).toEqual([200, full?.body.data?.length]);
  }
  const models = await session.call<{ data: { routes: unknown }[] }>("GET", "/models");
  expect(models.body.data.every(({ routes }) => routes !== null)).toBe(true);
});

describe("sessions", () => {
  test("open sessions are listed with who holds them, and an operator ends one of another person", async () => {
    const { id: operatorId, secret } = await create("Walter", "auditor");
    const session = await signIn(service, secret);
    const { body } = await session.call<{ data: { id: string; holder: object }[] }>("GET", "/sessions");
    const own = body.data[0];
    expect(own).toMatchObject({ role: "auditor", holder: { id: operatorId, name: "Walter" }, organization_id: null });
    expect(JSON.stringify(body)).not.toContain(session.headers.cookie?.split("=")[1]);
    expect((await session.call("DELETE", `/sessions/${own?.id}`)).status).toBe(403);
    expect((await operator(service).call("DELETE", `/sessions/${own?.id}`)).status).toBe(204);
    expect((await session.call("GET", "/sessions")).status).toBe(401);
    expect((await operator(service).call("DELETE", `/sessions/${own?.id}`)).status).toBe(404);
    const audit = await operator(service).call<{ data: object[] }>("GET", "/audit?action=session.end");
    expect(audit.body.data).toMatchObject([{ subject_id: operatorId, actor: { name: "admin" } }]);
  });

  test("a page of sessions goes on where the last one ended", async () => {
    for (let count = 0; count < 3; count += 1) await signIn(service, memberToken);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? "?limit=2" : `?limit=2&cursor=${cursor}`;
      const { body } = await operator(service).call<{ data: { id: string }[]; next_cursor: string | null }>(
        "GET",
        `/sessions${query}`,
      );
      seen.push(...body.data.map(({ id }) => id));
      cursor = body.next_cursor;
    } while (cursor !== null);
    const all = await operator(service).call<{ data: { id: string }[] }>("GET", "/sessions?limit=200");
    expect(seen).toEqual(all.body.data.map(({ id }) => id));
    expect(new Set(seen).size).toBe(seen.length);
  });
});

describe("docs/identity.md", () => {
  const page = readFileSync(new URL("../../docs/identity.md", import.meta.url), "utf8");
  const runExample = (example: string, variables: Record<string, string> = {}) => {
    const env = { ...process.env, URL: service.url, ADMIN_TOKEN: firstAdminToken(service), ...variables };
    return promisify(execFile)("sh", ["-c", example], { env });
  };

  test("both examples set the same bounds of tokens", async () => {
    const { id } = await makeOrganization(service, "1");
    const [, example = ""] = /```sh\n(curl [^`]*token-bounds[^`]*)```/.exec(page) ?? [];
    const { token_bounds: bounds } = JSON.parse((await runExample(example, { ORGANIZATION: id })).stdout);
    const models = ["sandbox/echo", "sandbox/story"];
    expect(bounds).toEqual({ max_count: 5, models, max_cap: 20, max_days: 90 });
    const [, command = ""] = /`tollgate (org token-bounds [^`]*)`/.exec(page) ?? [];
    const words = command.replace("ORGANIZATION", id).split(" ");
    expect(await service.tollgate(...words)).toEqual({ id, maxCount: 5, models, maxCap: 20, maxDays: 90 });
  });

  test("the example creates an auditor", async () => {
    const [, example = ""] = /```sh\n(curl [^`]*)```/.exec(page) ?? [];
    const { stdout } = await runExample(example);
    const { name, role, secret } = JSON.parse(stdout) as Created & { role: string };
    expect([name, role]).toEqual(["Ada Lovelace", "auditor"]);
    expect((await withToken(secret).call("GET", "/audit")).status).toBe(200);
    expect((await withToken(secret).call("POST", "/organizations", { name: "x" })).status).toBe(403);
  });

  test("its table has the permissions of every role", () => {
    const rows = [...page.matchAll(/^\| `([\w-]+:\w+)` \| (.*) \|$/gm)].map(([, name, cells]) => [
      name,
      cells?.split(" | "),
    ]);
    const columns = ["guest", ...ROLES] as const;
    const real = PERMISSIONS.map((permission) => {
      return [permission, columns.map((role) => (rolesWith(permission).includes(role) ? "yes" : "–"))];
    });
    expect(rows).toEqual(real);
  });
});

describe("the command line", () => {
  test("commands create, list and revoke operators, and list and end sessions", async () => {
    const made = await service.tollgate<{ id: string; token: string }>(
      "operator",
      "create",
      "Zoe",
      "--role",
      "auditor",
    );
    expect(made).toMatchObject({ name: "Zoe", role: "auditor", token: expect.stringMatching(/^tg-admin-/) });
    const session = await signIn(service, made.token);
    const listed = await service.tollgate<{ id: string; status: string }[]>("operator", "list");
    const createdAt = expect.stringMatching(/Z$/);
    expect(listed.find(({ id }) => id === made.id)).toMatchObject({ name: "Zoe", status: "active", createdAt });
    expect(listed.at(-1)).toMatchObject({ id: "adm_first", name: "admin", role: "operator" });
    const sessions = await service.tollgate<{ id: string; holder: { id: string } }[]>("session", "list");
    const own = sessions.find(({ holder }) => holder.id === made.id);
    expect(await service.tollgate("session", "end", own?.id ?? "none")).toEqual({ id: own?.id });
    expect((await session.call("GET", "/organizations")).status).toBe(401);
    expect(await service.tollgate("operator", "revoke", made.id)).toMatchObject({
      id: made.id,
      status: "revoked",
      revokedAt: expect.stringMatching(/Z$/),
    });
    expect((await withToken(made.token).call("GET", "/organizations")).status).toBe(401);
    for (const [words, line] of [
      [["operator", "revoke", "adm_none"], /There is no operator with the id "adm_none"/],
      [["session", "end", "ses_00"], /There is no session with the id "ses_00"/],
      [["operator", "create", "x", "--role", "owner"], /must be operator or auditor/],
      [["operator", "create", "admin"], /There is an operator named "admin" already/],
    ] as const) {
      await expect(service.tollgate(...words)).rejects.toThrow(line);
    }
  });

  test("`admin token` ends every operator and makes one who is named admin", async () => {
    const { secret } = await create("Yves", "operator");
    const { token } = await service.tollgate<{ token: string }>("admin", "token");
    expect((await withToken(secret).call("GET", "/organizations")).status).toBe(401);
    const { body } = await withToken(token).call<{ data: { name: string; status: string }[] }>("GET", "/operators");
    expect(body.data.filter(({ status }) => status === "active")).toMatchObject([{ name: "admin", role: "operator" }]);
  });
});
