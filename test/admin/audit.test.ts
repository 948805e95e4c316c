import { afterAll, beforeAll, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { makeOrganization, type Organization, type RunningService, startService } from "../support/service.ts";

interface Entry {
  id: string;
  at: string;
  action: string;
  actor: { kind: string; id: string | null; name: string | null };
  organization_id: string | null;
  subject_id: string | null;
}

let service: RunningService;
let organization: Organization;
let admin: AdminClient;

beforeAll(async () => {
  service = await startService();
  admin = operator(service);
  organization = await makeOrganization(service, "10");
  await admin.call("PATCH", `/organizations/${organization.id}`, { name: "=1+1" });
  await admin.call("PATCH", `/tokens/${organization.tokenId}`, { name: "renamed" });
});
afterAll(() => service?.end());

const list = async (query: string) =>
  (await admin.call<{ data: Entry[] }>("GET", `/audit?limit=200&${query}`)).body.data as Entry[];

test("The audit log is filtered by actor: by kind, id and name.", async () => {
  const all = await list("");
  const changed = all.find(({ action }) => action === "organization.change");
  expect(changed?.actor).toMatchObject({ kind: "operator", name: "admin" });
  for (const actor of ["operator", "Operator", changed?.actor.id, changed?.actor.name]) {
    const found = await list(`actor=${actor}`);
    expect(found.map(({ id }) => id)).toEqual(all.filter((one) => one.actor.kind === "operator").map(({ id }) => id));
  }
  expect((await list("actor=command")).map(({ actor }) => actor.kind)).not.toContain("operator");
  expect(await list("actor=nobody")).toEqual([]);
});

test("The audit log is filtered by subject and by time, together with the other filters.", async () => {
  const found = await list(`subject_id=${organization.tokenId}`);
  expect(found.map(({ action }) => action)).toEqual(["token.change", "token.create"]);
  expect(await list(`subject_id=${organization.tokenId}&action=token.change`)).toEqual(found.slice(0, 1));
  const changedAt = found[0]?.at ?? "";
  expect((await list(`subject_id=${organization.tokenId}&from=${changedAt}`)).map(({ id }) => id)).toEqual([
    found[0]?.id,
  ]);
  expect((await list(`subject_id=${organization.tokenId}&to=${changedAt}`)).map(({ id }) => id)).toEqual([
    found[1]?.id,
  ]);
  const refused = await admin.call("GET", "/audit?from=yesterday");
  expect(refused.status).toBe(400);
  expect(refused.body).toMatchObject({ error: { param: "from" } });
  const range = `from=${changedAt}&to=2026-01-01T00:00:00Z`;
  const organizationPath = `/organizations/${organization.id}`;
  for (const path of ["/audit", "/audit.csv", "/requests", `${organizationPath}/statement`]) {
    const reversed = await admin.call("GET", `${path}?${range}`);
    expect(reversed, path).toMatchObject({ status: 400, body: { error: { code: "invalid_value", param: "from" } } });
    expect((await admin.call("GET", `${path}?from=${changedAt}&to=${changedAt}`)).status).toBe(200);
  }
});

test("The exports have the entries of the list, and no text in them becomes a formula.", async () => {
  const filter = `organization_id=${organization.id}`;
  const entries = await list(filter);
  const lines = await admin.call<string>("GET", `/audit.jsonl?${filter}`);
  expect(lines.headers.get("content-disposition")).toBe('attachment; filename="audit.jsonl"');
  const rows = lines.body.split("\n").filter(Boolean);
  expect(rows.map((line) => JSON.parse(line))).toEqual(entries);
  const csv = await admin.call<string>("GET", `/audit.csv?${filter}`);
  expect(csv.headers.get("content-type")).toBe("text/csv; charset=utf-8");
  const [head, ...cells] = csv.body.split("\r\n").filter(Boolean);
  expect(head).toBe(
    "id,at,actor_kind,actor_id,actor_name,address,action,organization_id,subject_id,before,after,request_id",
  );
  expect(cells.map((row) => row.split(",").slice(0, 3))).toEqual(
    entries.map(({ id, at, actor }) => [id, at, actor.kind]),
  );
  expect(csv.body).toContain('"{""name"":""=1+1""');
  expect(csv.body).not.toMatch(/(^|,)=/m);
});

test("An export reads every page.", async () => {
  for (let round = 0; round < 205; round += 1)
    await admin.call("PATCH", `/organizations/${organization.id}`, { name: `name ${round}` });
  const { body } = await admin.call<string>("GET", `/audit.jsonl?action=organization.change`);
  const names = body
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line).after.name);
  expect(names).toEqual([...Array.from({ length: 205 }, (_, round) => `name ${204 - round}`), "=1+1"]);
});

test("Tokens that expire before a time are listed.", async () => {
  const [soon, later] = ["2099-01-01T00:00:00Z", "2099-02-01T00:00:00Z"];
  const make = (name: string, expires_at?: string) =>
    admin.call("POST", "/tokens", { organization_id: organization.id, name, expires_at });
  await Promise.all([make("soon", soon), make("later", later), make("ever")]);
  const namesBefore = async (time: string) => {
    const query = `organization_id=${organization.id}&expires_before=${time}`;
    const { body } = await admin.call<{ data: { name: string }[] }>("GET", `/tokens?${query}`);
    return (body.data as { name: string }[]).map(({ name }) => name).toSorted();
  };
  expect(await namesBefore(soon)).toEqual([]);
  expect(await namesBefore(later)).toEqual(["soon"]);
  expect(await namesBefore("2100-01-01T00:00:00Z")).toEqual(["later", "soon"]);
});
