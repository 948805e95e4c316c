import { v7 } from "uuid";
import { expect, test } from "vitest";
import { type AllowanceRow, periodAt } from "../../src/credits/allowance.ts";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { OrganizationUpdate } from "../../src/stores/queries/accounts.ts";
import { randomId, type Subject } from "./fixture.ts";

const FAR_MS = 4_000_000_000_000;

function allowanceOf(organizationId: string, rest: Partial<AllowanceRow> = {}): AllowanceRow {
  const terms = { amount: 2n ** 60n + 1n, priority: -3, lapses: true, createdAtMs: 5, endedAtMs: null };
  return {
    organizationId,
    id: randomId("allowance"),
    reference: null,
    ...terms,
    anchorAtMs: FAR_MS,
    nextAtMs: FAR_MS,
    ...rest,
  };
}

export function allowanceCases(subject: Subject): void {
  rowCases(subject);
  pauseCase(subject);
  auditCase(subject);
}

function rowCases(subject: Subject): void {
  test("an allowance is returned as it was written, and ends once", async () => {
    const { allowances } = subject.store;
    const organizationId = await subject.organization();
    const rows = [allowanceOf(organizationId), allowanceOf(organizationId, { lapses: false })];
    for (const row of rows) expect(await allowances.insert(row)).toEqual(row);
    const listed = await allowances.list({ organizationId, after: null, limit: 10 });
    expect(listed).toEqual(rows.sort((a, b) => (a.id < b.id ? -1 : 1)));
    const [first, second] = listed as [AllowanceRow, AllowanceRow];
    expect(await allowances.list({ organizationId, after: first.id, limit: 10 })).toEqual([second]);
    expect(await allowances.list({ organizationId: null, after: null, limit: 1_000 })).toEqual(
      expect.arrayContaining(rows),
    );
    for (const of of [organizationId, null]) expect(await allowances.find(of, second.id)).toEqual(second);
    expect(await allowances.find("org_other", second.id)).toBeUndefined();
    expect(await allowances.end(first, 77)).toBe(true);
    expect(await allowances.end(first, 88)).toBe(false);
    expect(await allowances.end({ organizationId, id: "absent" }, 88)).toBe(false);
    const [ended] = await allowances.list({ organizationId, after: null, limit: 1 });
    expect(ended).toEqual({ ...first, endedAtMs: 77 });
  });

  test("an allowance of a reference is created once, also concurrently and after the first has ended", async () => {
    const { allowances } = subject.store;
    const other = await subject.openAnother();
    const [organizationId, elsewhere] = [await subject.organization(), await subject.organization()];
    const wanted = () => allowanceOf(organizationId, { reference: "contract 7" });
    const both = [allowances, other.allowances, allowances, other.allowances];
    const made = await Promise.all(both.map((rows) => rows.insert(wanted())));
    const [first] = await allowances.list({ organizationId, after: null, limit: 10 });
    expect(made).toEqual(both.map(() => first));
    await allowances.end(made[0] as AllowanceRow, 5);
    expect(await allowances.insert(wanted())).toEqual({ ...first, endedAtMs: 5 });
    expect(await allowances.list({ organizationId, after: null, limit: 10 })).toHaveLength(1);
    for (const row of [allowanceOf(organizationId, { reference: "8" }), { ...wanted(), organizationId: elsewhere }]) {
      expect(await allowances.insert(row)).toEqual(row);
    }
    await other.close();
  });

  test("allowances are due whose month begins in time, by the store's clock, and that have not ended", async () => {
    const { allowances } = subject.store;
    const organizationId = await subject.organization();
    const inMs = (ms: number) => allowanceOf(organizationId, { nextAtMs: Date.now() + ms });
    const [past, soon, later, ended] = [inMs(-50_000), inMs(30_000), inMs(600_000), inMs(-1_000)];
    for (const row of [past, soon, later, ended]) await allowances.insert(row);
    await allowances.end(ended, 1);
    const due = async () => {
      const { nowMs, rows } = await allowances.due({ aheadMs: 60_000, limit: 100 });
      if (rows.length > 0) expect(Math.abs(nowMs - Date.now())).toBeLessThan(60_000);
      return rows.filter((row) => row.organizationId === organizationId);
    };
    expect(await due()).toEqual([past, soon]);
    await allowances.advance(past, past.nextAtMs + 1);
    // Another process has moved it meanwhile: its value stays.
    await allowances.advance(past, FAR_MS);
    expect(await due()).toEqual([{ ...past, nextAtMs: past.nextAtMs + 1 }, soon]);
    await allowances.advance({ ...past, nextAtMs: past.nextAtMs + 1 }, FAR_MS);
    expect(await due()).toEqual([soon]);
    await allowances.advance(soon, FAR_MS);
  });
}

function pauseCase(subject: Subject): void {
  test("a paused organization's allowances are not due if they are paused with it, and skip the months until it is resumed", async () => {
    const { accounts, allowances } = subject.store;
    const organizationId = await subject.organization();
    const anchorAtMs = Date.now() - 100 * 86_400_000;
    const overdue = allowanceOf(organizationId, { anchorAtMs, nextAtMs: anchorAtMs });
    const later = allowanceOf(organizationId, { nextAtMs: Date.now() + 30_000 });
    for (const row of [overdue, later]) await allowances.insert(row);
    const change = async (fields: OrganizationUpdate) => {
      const record = (before: object, after: object): AuditRow => ({
        ...{
          id: v7(),
          madeAtMs: 5,
          actorKind: "command",
          actorId: null,
          actorName: null,
          address: null,
          requestId: null,
        },
        ...{ action: "organization.change", organizationId, subjectId: organizationId, before: { ...before } },
        after: { ...after },
      });
      await accounts.changeOrganization(organizationId, fields, record);
      const { rows } = await allowances.due({ aheadMs: 60_000, limit: 100 });
      return rows.filter((row) => row.organizationId === organizationId);
    };
    expect(await change({ status: "paused" })).toEqual([overdue, later]);
    expect(await change({ status: "paused", pausesAllowances: true })).toEqual([]);
    expect(await change({ name: "Renamed" })).toEqual([]);
    // The month of the resumption has begun, and is skipped as well; the one that begins in half a minute is granted.
    expect(await change({ status: "active", pausesAllowances: false })).toEqual([later]);
    const listed = await allowances.list({ organizationId, after: null, limit: 9 });
    const { endMs } = periodAt(anchorAtMs, Date.now());
    expect(listed.find(({ id }) => id === overdue.id)).toEqual({ ...overdue, nextAtMs: endMs });
    // Resumed twice, nothing is skipped.
    await allowances.advance({ ...overdue, nextAtMs: endMs }, anchorAtMs);
    expect(await change({ status: "active", pausesAllowances: false })).toHaveLength(2);
    await Promise.all([overdue, later].map((row) => allowances.end(row, 1)));
  });
}

function auditCase(subject: Subject): void {
  test("the audit record of an allowance is written once per reference, and once at its end", async () => {
    const { admin, allowances } = subject.store;
    const organizationId = await subject.organization();
    const auditOf = (action: string, subjectId: string): AuditRow => {
      const actor = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
      return { id: v7(), madeAtMs: 5, ...actor, action, organizationId, subjectId, before: null, after: null };
    };
    const [first, again] = [{ reference: "r" }, { reference: "r" }].map((rest) => allowanceOf(organizationId, rest));
    const unnamed = allowanceOf(organizationId);
    const written: AuditRow[] = [];
    for (const [row, isFirst] of [
      [first, true],
      [again, false],
      [unnamed, true],
    ] as [AllowanceRow, boolean][]) {
      const audit = auditOf("allowance.create", row.id);
      await allowances.insert(row, audit);
      if (isFirst) written.push(audit);
    }
    for (const isFirst of [true, false]) {
      const audit = auditOf("allowance.end", unnamed.id);
      expect(await allowances.end(unnamed, 7, audit)).toBe(isFirst);
      if (isFirst) written.push(audit);
    }
    const entries = await admin.audit({ organizationId, action: null, before: null, limit: 10 });
    expect(entries).toEqual(written.toReversed());
  });
}
