import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { HoldTransition } from "../../src/credits/books.ts";
import { DAMAGES, ofOrganization, type Used } from "./damages.ts";
import { auditOf, grantOf, HOUR_MS, holdOf, referenceOf, releaseOf, type Subject, settleOf } from "./fixture.ts";

/** Creates an organization with a request and a grant in every state, and an adjustment of every kind. */
async function usedOrganization(subject: Subject): Promise<Used> {
  const organizationId = await subject.organization(1_000n);
  await subject.budget(organizationId, { window: "lifetime", amount: 1_000n });
  const keyed = (hold: HoldTransition, key: string) => {
    return { ...hold, idempotency: { callerId: "tok_first", key, fingerprint: "f", keepMs: HOUR_MS } };
  };
  const open = keyed(holdOf(organizationId, 10n), "open");
  const charged = keyed(holdOf(organizationId, 10n), "charged");
  const released = holdOf(organizationId, 10n);
  const [expired, late] = [holdOf(organizationId, 10n, -1_000), holdOf(organizationId, 10n, -1_000)];
  await subject.books.apply("holds", [open, released, charged, expired, late]);
  await subject.books.apply("durable", [
    releaseOf(released),
    { ...settleOf(charged, 7), answer: '"answer"' },
    { kind: "expire", ...referenceOf(expired) },
    { kind: "expire", ...referenceOf(late) },
  ]);
  const [soon, later] = [Date.now() - 1, Date.now() + HOUR_MS];
  const terms = { reference: null, note: null };
  const adjustment = (kind: string) => ({ organizationId, adjustmentId: `${kind}_adjustment`, ...terms });
  await subject.books.apply("durable", [
    settleOf(late, 8),
    grantOf(organizationId, 20n, { expiresAtMs: soon }),
    grantOf(organizationId, 20n, { effectiveAtMs: later }),
    { kind: "revoke", ...adjustment("revoke"), amount: 5n, grantId: null },
    {
      kind: "credit",
      ...adjustment("credit"),
      amount: 2n,
      holdId: charged.facts.holdId,
      expiresAtMs: later,
      priority: 0,
    },
  ]);
  await subject.tamper(`insert into statement_balance values ('${organizationId}', 1, 0)`);
  const [a, b, c, d, e] = [open, released, charged, expired, late].map(({ facts }) => facts.holdId) as [
    string,
    string,
    string,
    string,
    string,
  ];
  return { organizationId, open: a, released: b, charged: c, expired: d, late: e };
}

export function verifyCases(subject: Subject): void {
  test("books after every kind of transition have no violations", async () => {
    const { organizationId } = await usedOrganization(subject);
    const verification = await subject.books.verify(organizationId);
    expect(verification).toEqual({ organizationId, holds: 5, events: 4, violations: [], more: 0 });
  });

  test("a hold that was open when the last request was booked is not overdue, however long ago that was", async () => {
    const organizationId = await subject.organization(1_000n);
    const dayMs = 24 * HOUR_MS;
    const hold = holdOf(organizationId, 10n);
    await subject.held({ ...hold, facts: { ...hold.facts, holdId: v7({ msecs: Date.now() - dayMs }) } });
    const ofIt = `where organization_id = '${organizationId}'`;
    await subject.tamper(`update hold set made_at = made_at - ${dayMs}, expires_at = expires_at - ${dayMs} ${ofIt}`);
    expect((await subject.books.verify(organizationId)).violations).toEqual([]);
    await subject.books.apply("holds", [holdOf(organizationId, 10n)]);
    expect((await subject.books.verify(organizationId)).violations).toMatchObject([{ invariant: 8 }]);
  });

  test.each(DAMAGES)("it is found that %s: invariant %i", async (_, invariant, sql, hold) => {
    const used = await usedOrganization(subject);
    for (const statement of sql(used).split("; ")) await subject.tamper(statement);
    const { violations } = await subject.books.verify(used.organizationId);
    const named = hold === undefined ? {} : { holdId: used[hold] };
    const { organizationId } = used;
    expect(violations).toContainEqual(expect.objectContaining({ invariant, organizationId, ...named }));
    expect(violations.every(({ message }) => message.length > 10)).toBe(true);
  });

  test.each(["balance", "credit_grant", "hold", "request", "adjustment", "idempotency_key", "statement_balance"])(
    "rows of %s without an organization are found",
    async (table) => {
      const used = await usedOrganization(subject);
      await subject.tamper(`update ${table} set organization_id = 'org_lost_${table}' ${ofOrganization(used)}`);
      const lost = { invariant: 10, organizationId: `org_lost_${table}` };
      expect((await subject.books.verifyStore()).list).toContainEqual(expect.objectContaining(lost));
      await subject.tamper(`delete from ${table} where organization_id = 'org_lost_${table}'`);
    },
  );

  test("damage to one organization is not reported for another", async () => {
    const [broken, sound] = [await usedOrganization(subject), await usedOrganization(subject)];
    await subject.tamper(`update balance set granted = granted + 1 ${ofOrganization(broken)}`);
    await subject.expectSound(sound.organizationId);
  });

  test("a budget that was changed by a service with a clock ahead and then deleted is not missing", async () => {
    const organizationId = await subject.organization();
    const [row, nowMs] = [await subject.budget(organizationId), Date.now()];
    const { budgets } = subject.store;
    const changed = { ...row, name: "renamed" };
    expect(await budgets.changeBudget(row, changed, auditOf(organizationId, row.id, nowMs + 2_000))).toBe(true);
    expect(await budgets.deleteBudget(changed, auditOf(organizationId, row.id, nowMs + 1_000))).toBe(true);
    await subject.expectSound(organizationId);
  });

  test("an expired hold is not a violation during the recovery time and while it waits for the sweeper", async () => {
    const organizationId = await subject.organization(10n);
    await subject.held(holdOf(organizationId, 1n, -500_000));
    await subject.expectSound(organizationId);
    await subject.held(holdOf(organizationId, 1n, -520_000));
    expect((await subject.books.verify(organizationId)).violations).toMatchObject([{ invariant: 8 }]);
    expect((await subject.books.verify(organizationId, 600_000)).violations).toEqual([]);
  });
}

/** Drops the unique index: only without it can a reference exist twice. */
export function repeatedReferenceCase(subject: Subject): void {
  test("a reference that was granted twice violates invariant 9", async () => {
    const organizationId = await subject.organization();
    await subject.one(grantOf(organizationId, 1n, { reference: "first" }));
    await subject.one(grantOf(organizationId, 1n, { reference: "second" }));
    await subject.expectSound(organizationId);
    await subject.tamper("drop index credit_grant_reference");
    await subject.tamper(`update credit_grant set reference = 'first' where organization_id = '${organizationId}'`);
    const { violations } = await subject.books.verify(organizationId);
    expect(violations).toMatchObject([{ invariant: 9, organizationId, holdId: null }]);
  });
}
