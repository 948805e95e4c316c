import { expect, test } from "vitest";
import type { AdminKeyName } from "../../src/stores/queries/admin.ts";
import { randomId, type Subject } from "./fixture.ts";

const HOUR_MS = 3_600_000;
const FIRST = { fingerprint: "first", keepMs: HOUR_MS };

export function adminKeyCases(subject: Subject): void {
  const newName = (scope = "operator"): AdminKeyName => ({ scope, key: randomId("key 'x'") });
  const isOf = ({ scope, key }: AdminKeyName) => `scope = '${scope}' and key = '${key.replaceAll("'", "''")}'`;

  test("one of many concurrent claims of a key succeeds", async () => {
    const { admin } = subject.store;
    const other = await subject.openAnother();
    const name = newName();
    const both = [admin, other.admin, admin, other.admin, admin, other.admin];
    const claims = await Promise.all(
      both.map((rows, index) => rows.claimAdminKey({ ...name, ...FIRST, fingerprint: `${index}` })),
    );
    expect(claims.filter((isFirst) => isFirst)).toHaveLength(1);
    expect(await other.admin.adminKey(name)).toMatchObject({
      fingerprint: `${claims.indexOf(true)}`,
      state: "running",
      status: null,
      answer: null,
    });
    await other.close();
  });

  test("a key has its answer, and belongs to one administrator", async () => {
    const { admin } = subject.store;
    const name = newName();
    const elsewhere = { ...name, scope: "org_other" };
    for (const each of [name, elsewhere]) expect(await admin.claimAdminKey({ ...each, ...FIRST })).toBe(true);
    await admin.answerAdminKey(name, 201, '{"id":"日"}');
    expect(await admin.claimAdminKey({ ...name, ...FIRST, fingerprint: "second" })).toBe(false);
    const answered = { fingerprint: "first", state: "answered", status: 201, answer: '{"id":"日"}' };
    expect(await admin.adminKey(name)).toMatchObject(answered);
    expect(await admin.adminKey(elsewhere)).toMatchObject({ state: "running" });
    await admin.interruptAdminKey(elsewhere);
    expect(await admin.adminKey(elsewhere)).toMatchObject({ state: "interrupted", status: null, answer: null });
    await admin.freeAdminKey(elsewhere);
    expect(await admin.adminKey(elsewhere)).toBeUndefined();
    expect(await admin.claimAdminKey({ ...elsewhere, ...FIRST, fingerprint: "second" })).toBe(true);
    expect(await admin.adminKey(name)).toMatchObject(answered);
  });

  test("an expired key can be claimed again, has its age by the store's clock, and is removed", async () => {
    const { admin } = subject.store;
    const [name, old] = [newName(), newName()];
    for (const each of [name, old]) await admin.claimAdminKey({ ...each, ...FIRST });
    await admin.answerAdminKey(name, 200, "1");
    await subject.tamper(`update admin_idempotency_key set created_at = created_at - 70000 where ${isOf(name)}`);
    const { ageMs } = (await admin.adminKey(name)) ?? {};
    expect(ageMs).toBeGreaterThanOrEqual(70_000);
    expect(ageMs).toBeLessThan(HOUR_MS);
    for (const each of [name, old]) {
      await subject.tamper(`update admin_idempotency_key set expires_at = created_at where ${isOf(each)}`);
    }
    expect(await admin.claimAdminKey({ ...name, ...FIRST, fingerprint: "second" })).toBe(true);
    expect(await admin.adminKey(name)).toMatchObject({ fingerprint: "second", state: "running", status: null });
    expect(await subject.books.removeOldKeys(1_000)).toBeGreaterThanOrEqual(1);
    expect(await admin.adminKey(old)).toBeUndefined();
    expect(await admin.adminKey(name)).toMatchObject({ fingerprint: "second" });
  });
}
