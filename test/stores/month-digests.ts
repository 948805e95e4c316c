import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { auditRow, COMMAND_ACTOR } from "../../src/admin/audit.ts";
import type { GrantRow } from "../../src/credits/books.ts";
import { auditStatement } from "../support/bulk.ts";
import { organizationsDue, STATEMENT_TERMS, storeDigests } from "../support/month-digests.ts";
import { book, close, type Owner, owner, startOf } from "./closings.ts";
import { grantOf, type Subject } from "./fixture.ts";

const PLAIN = { day: 3, days: [0, 0] as [number, number], kind: "charged" as const, output: 5, isCapped: false };

/** An organization with a grant of January, and charges of January and February 2024. */
async function history(subject: Subject): Promise<Owner> {
  const made = await owner(subject);
  await subject.write(
    `update credit_grant set created_at = ${startOf(0)} where organization_id = '${made.organizationId}'`,
  );
  for (const month of [0, 0, 1]) await book(subject, made, month, PLAIN);
  return made;
}

async function digests({ books }: Subject, organizationId: string): Promise<string[]> {
  return (await books.monthDigests(organizationId, {})).map(({ digest }) => digest);
}

/** The months of the violations of digests. Only those of statements may be others. */
async function violated({ books }: Subject, organizationId: string): Promise<string[]> {
  const { violations } = await books.verify(organizationId);
  const found = Map.groupBy(violations, ({ invariant }) => invariant);
  expect([...found.keys()].filter((invariant) => invariant !== 15 && invariant !== 18)).toEqual([]);
  return (found.get(15) ?? []).map(({ message }) => /booked in (\S+) have/.exec(message)?.[1] ?? message);
}

export function monthDigestCases(subject: Subject): void {
  formatCase(subject);
  stepCases(subject);
  evidenceCases(subject);
  changeCases(subject);
  retentionCase(subject);
}

const ROWS: Record<string, Record<string, string | number>[]> = {
  credit_grant: [
    {
      ...{ id: "g", source: "grant", amount: 7, revoked: 0, remaining: 7, is_used_up: 0, state: "active" },
      ...{ effective_at: startOf(0), priority: 0, reference: 'é "🦊"', created_at: startOf(0) },
    },
  ],
  adjustment: [
    { id: "a", kind: "revoke", amount: 1, draws: '[["g","1"]]', is_all: 0, made_at: startOf(1) - 1 },
    { id: "b", kind: "revoke", amount: 2, draws: "[]", is_all: 0, made_at: startOf(1) },
  ],
  request: (
    [
      ["late", 2, 1, "complete"],
      ["r2", 3, 0, "complete"],
      ["r1", 3, 0, "complete"],
      ["r0", 4, 0, "released"],
    ] as const
  ).map(([id, ms, isLate, ending]) => ({
    ...{ id: `018cc251-f400-7${id}`, token_id: "t", request_id: "q", model: "m", upstream: "u" },
    ...{ charge: "i@1 c@0 w@0", input_tokens: 0, output_tokens: 0 },
    ...{ amount: 9_007_199_254_740_993n.toString(), cost: 0, shortfall: 0, draws: "[]", basis: "reported", ending },
    ...{ made_at: startOf(0), ended_at: startOf(0) + ms, is_late: isLate },
  })),
};

const REQUEST_LINE = (id: string, ms: number, isLate: number) =>
  `{"amount":"9007199254740993","basis":"reported","charge":"i@1 c@0 w@0","cost":"0","draws":"[]","ended_at":"${startOf(0) + ms}",` +
  `"ending":"complete","id":"018cc251-f400-7${id}","input_tokens":"0",` +
  `"is_late":"${isLate}","made_at":"1704067200000","model":"m","organization_id":"org_lines",` +
  `"output_tokens":"0","request_id":"q","shortfall":"0","table":"request",` +
  `"token_id":"t","upstream":"u"}`;
const JANUARY = [
  '{"month":"2024-01","organization_id":"org_lines"}',
  '{"amount":"7","created_at":"1704067200000","effective_at":"1704067200000","id":"g","organization_id":"org_lines",' +
    '"priority":"0","reference":"é \\"🦊\\"","source":"grant","table":"credit_grant"}',
  '{"amount":"1","draws":"[[\\"g\\",\\"1\\"]]","id":"a","is_all":"0","kind":"revoke","made_at":"1706745599999",' +
    '"organization_id":"org_lines","table":"adjustment"}',
  REQUEST_LINE("r1", 3, 0),
  REQUEST_LINE("r2", 3, 0),
  REQUEST_LINE("late", 2, 1),
];

function sha256(lines: readonly string[]): string {
  return createHash("sha256")
    .update(lines.map((line) => `${line}\n`).join(""))
    .digest("hex");
}

function formatCase(subject: Subject): void {
  test("a digest is the SHA-256 of the documented lines, and includes the digest of the month before", async () => {
    const id = "org_lines";
    await subject.store.accounts.insertOrganization({ id, name: "Lines", kind: "standard", createdAtMs: 1 });
    for (const [table, rows] of Object.entries(ROWS)) {
      for (const row of rows) {
        const values = Object.values(row).map((value) => `'${value}'`);
        await subject.write(
          `insert into ${table} (organization_id, ${Object.keys(row).join(", ")}) values ('${id}', ${values.join(", ")})`,
        );
      }
    }
    for (const limit of [1, 2, 500]) {
      await subject.write(`delete from month_digest where organization_id = '${id}'`);
      await storeDigests(subject.store, id, limit);
      const [first, second, third] = await subject.books.monthDigests(id, {});
      const january = sha256(JANUARY);
      expect(first).toEqual({ organizationId: id, month: startOf(0), digest: january });
      const february = sha256([
        `{"month":"2024-02","organization_id":"org_lines","previous":"${january}"}`,
        `{"amount":"2","draws":"[]","id":"b","is_all":"0","kind":"revoke","made_at":"1706745600000",` +
          `"organization_id":"org_lines","table":"adjustment"}`,
      ]);
      expect(second).toEqual({ organizationId: id, month: startOf(1), digest: february });
      const march = sha256([`{"month":"2024-03","organization_id":"org_lines","previous":"${february}"}`]);
      expect(third).toEqual({ organizationId: id, month: startOf(2), digest: march });
    }
    const within = { fromMs: startOf(0) + 1, toMs: startOf(3) - 1 };
    expect(await subject.books.monthDigests(id, within)).toMatchObject([{ month: startOf(1) }]);
  });
}

function stepCases(subject: Subject): void {
  test("every month that is over has a digest, without a gap up to the current one", async () => {
    const { organizationId } = await history(subject);
    expect(await organizationsDue(subject.store.monthDigests)).toContain(organizationId);
    await storeDigests(subject.store, organizationId);
    const months = (await subject.books.monthDigests(organizationId, {})).map(({ month }) => month);
    expect(months.slice(0, 3)).toEqual([startOf(0), startOf(1), startOf(2)]);
    expect(months).toEqual(months.map((_, index) => startOf(index)));
    const next = await subject.store.monthDigests.next(organizationId);
    expect(next).toMatchObject({ month: startOf(months.length), isOver: false });
    expect(startOf(months.length + 1) + 86_400_000).toBeGreaterThan(Date.now());
    expect(await organizationsDue(subject.store.monthDigests)).not.toContain(organizationId);
    await subject.expectSound(organizationId);
  });

  test("an organization without a booking has no digest, and a month that is not over gets none", async () => {
    const organizationId = await subject.organization();
    const { monthDigests } = subject.store;
    expect(await monthDigests.next(organizationId)).toBeUndefined();
    await subject.one(grantOf(organizationId, 1n));
    const next = await monthDigests.next(organizationId);
    if (next === undefined) throw new Error("the grant is missing");
    expect(next.isOver).toBe(false);
    await monthDigests.store(monthDigests.begin(organizationId, next), STATEMENT_TERMS);
    expect(await digests(subject, organizationId)).toEqual([]);
  });

  test("a process that dies between two pages leaves nothing, and of several at once one stores its digest", async () => {
    const { organizationId } = await history(subject);
    const begin = async ({ monthDigests }: typeof subject.store, pages: number) => {
      const next = await monthDigests.next(organizationId);
      if (next === undefined) throw new Error("nothing was booked");
      const hash = monthDigests.begin(organizationId, next);
      for (let page = 0; page < pages; page += 1) if (await monthDigests.add(hash, 1)) return hash;
      return hash;
    };
    for (const pages of [0, 1, 2, 3]) {
      await begin(subject.store, pages);
      expect(await digests(subject, organizationId)).toEqual([]);
    }
    const another = await subject.openAnother();
    const hashes = await Promise.all([subject.store, another].map((store) => begin(store, 99)));
    await Promise.all(hashes.map((hash) => another.monthDigests.store(hash, STATEMENT_TERMS)));
    expect(await digests(subject, organizationId)).toHaveLength(1);
    await Promise.all([storeDigests(subject.store, organizationId), storeDigests(another, organizationId, 1)]);
    await subject.expectSound(organizationId);
  });
}

function evidenceCases(subject: Subject): void {
  test("a grant that is changed together with its audit record and the balance is found", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const of = `where organization_id = '${organizationId}'`;
    const [grant] = await subject.store.directory.grants({ organizationId, before: null, limit: 1 });
    const { id: subjectId, amount } = grant as GrantRow;
    const time = { clock: Date.now, newId: () => `audit_${organizationId}` };
    const record = auditRow(COMMAND_ACTOR, { action: "credits.grant", organizationId, subjectId }, time);
    const recordOf = (granted: bigint) =>
      auditStatement({ ...record, rows: { credit_grant: [{ ...(grant as GrantRow), amount: granted }] } });
    await subject.write(recordOf(amount));
    expect(await violated(subject, organizationId)).toEqual([]);
    await subject.tamper(`update credit_grant set amount = amount + 5, remaining = remaining + 5 ${of}`);
    await subject.tamper(`update balance set granted = granted + 5, available = available + 5 ${of}`);
    await subject.tamper(`delete from audit_entry ${of}`);
    await subject.tamper(recordOf(amount + 5n));
    expect(await violated(subject, organizationId)).toEqual(["2024-01"]);
  });

  test("a charge that is changed together with everything that follows from it is found", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const of = `where organization_id = '${organizationId}'`;
    await subject.tamper(
      `update request set charge = replace(charge, 'o5@', 'o4@'), output_tokens = 4, cost = 4, draws = replace(draws, '"5"', '"4"') ${of} and ended_at > ${startOf(1)}`,
    );
    await subject.tamper(`update balance set spent = spent - 1, available = available + 1 ${of}`);
    await subject.tamper(`update credit_grant set remaining = remaining + 1 ${of}`);
    expect(await violated(subject, organizationId)).toEqual(["2024-02"]);
  });
}

function changeCases(subject: Subject): void {
  test("a late settlement belongs to the month in which it is booked", async () => {
    const { organizationId, tokenId } = await owner(subject);
    const of = `where organization_id = '${organizationId}'`;
    await subject.write(`update credit_grant set created_at = ${startOf(0)} ${of}`);
    // It ends in January, and is settled in February.
    await book(subject, { organizationId, tokenId }, 0, { ...PLAIN, days: [0, 40], kind: "late" });
    await storeDigests(subject.store, organizationId);
    await subject.expectSound(organizationId);
    const [january, february] = await digests(subject, organizationId);
    await subject.tamper(`update adjustment set token_id = 'tok_other' ${of}`);
    expect((await subject.books.verify(organizationId)).violations).toContainEqual(
      expect.objectContaining({ invariant: 15, message: expect.stringMatching(/^The rows booked in 2024-02 /) }),
    );
    await subject.write(`delete from adjustment ${of}`);
    await subject.write(`delete from month_digest ${of}`);
    await storeDigests(subject.store, organizationId);
    const without = await digests(subject, organizationId);
    expect(without[0]).toBe(january);
    expect(without[1]).not.toBe(february);
  });

  test("a stored digest that is changed, removed or misplaced is found", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const of = `where organization_id = '${organizationId}'`;
    const [january = ""] = await digests(subject, organizationId);
    const first = `${of} and month = ${startOf(0)}`;
    await subject.tamper(`update month_digest set digest = '${"0".repeat(64)}' ${first}`);
    expect(await violated(subject, organizationId)).toEqual(["2024-01", "2024-02"]);
    await subject.tamper(`update month_digest set digest = '${january}', month = ${9e15} ${first}`);
    expect(await violated(subject, organizationId)).toEqual([
      "2024-02",
      "A digest is stored for 9000000000000000, where no month begins.",
    ]);
    await subject.tamper(`delete from month_digest ${of} and month = ${9e15}`);
    expect(await violated(subject, organizationId)).toEqual(["2024-02"]);
    await subject.tamper(`update month_digest set organization_id = 'org_lost_digest' ${of}`);
    const lost = { invariant: 10, organizationId: "org_lost_digest" };
    expect((await subject.books.verifyStore()).list).toContainEqual(expect.objectContaining(lost));
    await subject.tamper("delete from month_digest where organization_id = 'org_lost_digest'");
  });
}

function retentionCase(subject: Subject): void {
  test("a digest is kept after its rows are removed, and the next one follows it", async () => {
    const made = await history(subject);
    const { organizationId } = made;
    await storeDigests(subject.store, organizationId);
    const before = await digests(subject, organizationId);
    expect(await close(subject, made, startOf(1), Number.POSITIVE_INFINITY)).toBe(true);
    expect(await digests(subject, organizationId)).toEqual(before);
    await subject.expectSound(organizationId);
    await subject.write(
      `delete from month_digest where organization_id = '${organizationId}' and month > ${startOf(0)}`,
    );
    await storeDigests(subject.store, organizationId);
    expect(await digests(subject, organizationId)).toEqual(before);
    // Without rows there can be no digest of a month any more.
    await subject.write(`delete from month_digest where organization_id = '${organizationId}'`);
    expect(await subject.store.monthDigests.next(organizationId)).toMatchObject({ month: startOf(1) });
    const late = subject.store.monthDigests.begin(organizationId, {
      ...{ month: startOf(0), previous: undefined, isOver: true },
    });
    await subject.store.monthDigests.store(late, STATEMENT_TERMS);
    expect(await digests(subject, organizationId)).toEqual([]);
  });
}
