import { expect, test } from "vitest";
import { isoMonth } from "../../src/api/time.ts";
import { closingOf, type MonthlyStatementRow, statementId } from "../../src/credits/monthly-statement.ts";
import { sumOfTotals } from "../../src/credits/statement-totals.ts";
import { csvOfStatement, toMonthlyStatement } from "../../src/reports/monthly-statement.ts";
import { Statements } from "../../src/reports/statement.ts";
import { STATEMENT_TERMS, storeDigests } from "../support/month-digests.ts";
import { book, close, type Owner, owner, startOf } from "./closings.ts";
import { grantOf, type Subject } from "./fixture.ts";

const PLAIN = { day: 3, days: [0, 0] as [number, number], kind: "charged" as const, output: 5, isCapped: false };
const DAY_MS = 86_400_000;

/** An organization with a grant of January 2024 of a million, and charges of January and February. */
async function history(subject: Subject): Promise<Owner> {
  const made = await owner(subject);
  const of = `where organization_id = '${made.organizationId}'`;
  await subject.write(`update credit_grant set created_at = ${startOf(0)} ${of}`);
  for (const month of [0, 0, 1]) await book(subject, made, month, { ...PLAIN, isCapped: month === 1 });
  return made;
}

async function statementsOf({ store }: Subject, organizationId: string): Promise<MonthlyStatementRow[]> {
  const search = { month: null, before: null, limit: 1_000 };
  return (await store.monthlyStatements.list({ organizationId, ...search })).reverse();
}

/** The messages about statements; there must be no others. */
async function violated({ books }: Subject, organizationId: string): Promise<string[]> {
  const { violations } = await books.verify(organizationId);
  expect(violations.filter(({ invariant }) => invariant !== 18)).toEqual([]);
  return violations.map(({ message }) => message);
}

export function monthlyStatementCases(subject: Subject): void {
  documentCases(subject);
  frozenCases(subject);
  numberCases(subject);
  verifyCases(subject);
  missingCases(subject);
  endCases(subject);
}

function documentCases(subject: Subject): void {
  test("a statement has the figures of the period's statement, and the next one begins where it ends", async () => {
    const made = await history(subject);
    const { organizationId, tokenId } = made;
    const of = `where organization_id = '${organizationId}'`;
    await subject.one(grantOf(organizationId, 70n, { grantId: "g_month", reference: "allowance/x/2024-01-01" }));
    await subject.one(grantOf(organizationId, 30n, { grantId: "g_invoice", reference: "invoice 7" }));
    const revocation = { amount: 11n, grantId: null, reference: "r", note: "=1+1", adjustmentId: "a_revoke" };
    await subject.one({ kind: "revoke", organizationId, ...revocation });
    await subject.write(
      `update credit_grant set created_at = ${startOf(1) + 5} ${of} and id in ('g_month', 'g_invoice')`,
    );
    await subject.write(`update adjustment set made_at = ${startOf(1) + 9} ${of} and id = 'a_revoke'`);
    await book(subject, made, 1, { ...PLAIN, kind: "credited" });
    // It ends in January, and is settled in February.
    await book(subject, made, 0, { ...PLAIN, days: [0, 40], kind: "late" });
    await storeDigests(subject.store, organizationId, 2);
    const statements = await statementsOf(subject, organizationId);
    const digests = await subject.books.monthDigests(organizationId, {});
    expect(statements.map(({ month, digest }) => ({ organizationId, month, digest }))).toEqual(digests);
    let opening = 0n;
    for (const row of statements) {
      expect(row.opening).toBe(opening);
      opening = closingOf(row);
      const { totals, closing, ...stated } = toMonthlyStatement(row);
      const period = {
        fromMs: row.month,
        toMs: Date.UTC(2024, Math.round((row.month - startOf(0)) / DAY_MS / 30.4) + 1),
      };
      const page = { organizationId, kind: null, cursor: null, limit: 100, ...period };
      expect(await new Statements(subject.books).page(page)).toMatchObject({
        opening: stated.opening,
        totals,
        closing,
      });
      const sumOf = (lines: readonly { amount: number }[]) =>
        lines.reduce((sum, { amount }) => sum + Math.round(amount * 1e6), 0);
      expect(sumOf(stated.models)).toBe(Number(row.totals.charge));
      expect(sumOf(stated.tokens)).toBe(Number(row.totals.charge));
      expect(sumOf(stated.bookings)).toBe(Number(sumOfTotals(row.totals) - row.totals.charge));
    }
    const february = statements[1] as MonthlyStatementRow;
    const stated = toMonthlyStatement(february);
    expect(stated.totals).toEqual({
      grant: 0.00003,
      allowance: 0.00007,
      charge: -0.000015,
      revoke: -0.000011,
      credit: 0.000001,
      lapse: 0,
    });
    expect(stated.bookings.map(({ kind, reference, note }) => [kind, reference, note])).toEqual([
      ["grant", "invoice 7", null],
      ["allowance", "allowance/x/2024-01-01", null],
      ["revoke", "r", "=1+1"],
      ["credit", null, null],
    ]);
    expect(stated.tokens.map(({ token_id }) => token_id)).toContain(tokenId);
    expect(stated.tokens.find(({ token_id }) => token_id === tokenId)?.token_name).not.toBeNull();
    const csv = csvOfStatement(february).split("\r\n");
    expect(csv[0]).toBe("section,at,kind,id,name,reference,note,requests,input_tokens,output_tokens,amount");
    expect(csv.filter((line) => line.startsWith("bookings,")).at(2)).toContain(",r,'=1+1,");
    expect(csv.at(-2)).toBe(`totals,,closing,,,,,,,,${stated.closing}`);
    await subject.expectSound(organizationId);
  });
}

function frozenCases(subject: Subject): void {
  test("a statement keeps the names, the letterhead and the prefix of the time when it was made", async () => {
    const { organizationId } = await history(subject);
    const letterhead = { name: "Gate GmbH", address: ["Weg 1", "Ulm"], taxId: "DE1", footer: "Thank you" };
    await storeDigests(subject.store, organizationId, 500, 1, { numberPrefix: "GATE-", letterhead });
    const of = `where organization_id = '${organizationId}'`;
    await subject.write(
      `update organization set name = 'Renamed', contacts = '["a@example.com"]' where id = '${organizationId}'`,
    );
    await subject.write(`update token set name = 'renamed' ${of}`);
    await storeDigests(subject.store, organizationId);
    const [first, second] = (await statementsOf(subject, organizationId)).map(toMonthlyStatement);
    expect(first).toMatchObject({
      id: expect.stringMatching(/^GATE-\d+$/),
      customer: { name: "Contract", contacts: [] },
      letterhead: { name: "Gate GmbH", address: ["Weg 1", "Ulm"], tax_id: "DE1", footer: "Thank you" },
    });
    expect(second).toMatchObject({
      id: expect.stringMatching(/^ST-\d+$/),
      customer: { name: "Renamed", contacts: ["a@example.com"] },
      letterhead: { name: null, address: [], tax_id: null, footer: null },
    });
    await subject.write(`update organization set name = 'Contract', contacts = null where id = '${organizationId}'`);
  });
}

function numberCases(subject: Subject): void {
  test("numbers have no gap, with nodes at once and passes that end early", async () => {
    const owners = [];
    for (let index = 0; index < 6; index += 1) owners.push(await history(subject));
    const nodes = [subject.store, await subject.openAnother()];
    const ids = owners.map(({ organizationId }) => organizationId);
    await Promise.all(
      nodes.flatMap((store, index) =>
        (index === 0 ? ids : ids.toReversed()).map(async (organizationId) => {
          const { monthDigests } = store;
          const next = await monthDigests.next(organizationId);
          if (next !== undefined) await monthDigests.add(monthDigests.begin(organizationId, next), 1);
          await storeDigests(store, organizationId, 1);
        }),
      ),
    );
    const months = (await subject.books.monthDigests(ids[0] ?? "", {})).length;
    for (const id of ids) expect(await statementsOf(subject, id)).toHaveLength(months);
    const rows = await subject.read("select number from monthly_statement order by number");
    expect(rows.map(({ number }) => Number(number))).toEqual(rows.map((_, index) => index + 1));
    expect((await subject.books.verifyStore()).list.filter(({ invariant }) => invariant === 18)).toEqual([]);
  });

  test("lists have the highest number first, of one organization or of one month", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const { monthlyStatements } = subject.store;
    const search = { organizationId, month: null, before: null, limit: 2 };
    const [last, before] = await monthlyStatements.list(search);
    expect((last?.number ?? 0) > (before?.number ?? 0)).toBe(true);
    const rest = await monthlyStatements.list({ ...search, before: before?.number ?? null, limit: 1_000 });
    expect(rest[0]?.number).toBeLessThan(before?.number ?? 0);
    const january = await monthlyStatements.list({ ...search, month: startOf(0), limit: 9 });
    expect(january.map(({ month }) => isoMonth(month))).toEqual(["2024-01"]);
    const [row] = january as [MonthlyStatementRow];
    expect(await monthlyStatements.find(row.number)).toEqual(row);
    expect(await monthlyStatements.ofMonth(organizationId, startOf(0))).toEqual(row);
    expect(await monthlyStatements.find(987_654_321)).toBeUndefined();
  });
}

function verifyCases(subject: Subject): void {
  test("a statement that does not agree with the books is found", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const [january, february, march] = await statementsOf(subject, organizationId);
    const [first, second] = [january, february].map((row) => row && statementId(row));
    const of = (month: number) => `where organization_id = '${organizationId}' and month = ${startOf(month)}`;
    expect(await violated(subject, organizationId)).toEqual([]);
    const changed = async (change: string, back: string, month = 0) => {
      await subject.tamper(`update monthly_statement set ${change} ${of(month)}`);
      const messages = await violated(subject, organizationId);
      await subject.tamper(`update monthly_statement set ${back} ${of(month)}`);
      return messages;
    };
    expect(await changed("charge_total = charge_total + 1", "charge_total = charge_total - 1")).toEqual([
      `The statement ${first} has charge -9, but the books say -10.`,
      `The statement ${second} has opening 999990, but the books say 999991.`,
    ]);
    expect(await changed("opening = 1", "opening = 999990", 1)).toHaveLength(2);
    const zeros = "0".repeat(64);
    expect(await changed(`digest = '${zeros}'`, `digest = '${january?.digest}'`)).toEqual([
      `The statement ${first} has digest "${zeros}", but the books say "${january?.digest}".`,
    ]);
    const [models, others] = ['"models":[{', '"models":[{"x":1,'];
    expect(
      await changed(
        `details = replace(details, '${models}', '${others}')`,
        `details = replace(details, '${others}', '${models}')`,
      ),
    ).toEqual([expect.stringContaining(`The statement ${first} has models [{"x":1,`)]);
    expect(await violated(subject, organizationId)).toEqual([]);
    expect(march?.opening).toBe(february && closingOf(february));
  });
}

function missingCases(subject: Subject): void {
  test("a statement that is missing is found, by its month and by its number", async () => {
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const of = `where organization_id = '${organizationId}' and month = ${startOf(1)}`;
    await subject.tamper(`update monthly_statement set month = month + 1 ${of}`);
    expect(await violated(subject, organizationId)).toEqual([
      "The month 2024-02 has no statement.",
      expect.stringMatching(/^The statement ST-\d+ has opening 999985, but the books say 0\.$/),
      expect.stringMatching(/^The month of the statement ST-\d+ has no digest\.$/),
    ]);
    await subject.tamper(
      `update monthly_statement set month = month - 1 ${of.replace(String(startOf(1)), String(startOf(1) + 1))}`,
    );
    await subject.tamper("update statement_series set last_number = last_number + 1");
    const message = expect.stringMatching(
      /^There are \d+ statements, the highest number is \d+, and the last number of the series is \d+\.$/,
    );
    expect((await subject.books.verifyStore()).list).toContainEqual(
      expect.objectContaining({ invariant: 18, message }),
    );
    await subject.tamper("update statement_series set last_number = last_number - 1");
  });

  test("the statement of a closed month stays, and still has to fit to the next one", async () => {
    const made = await history(subject);
    const { organizationId } = made;
    await storeDigests(subject.store, organizationId);
    const before = await statementsOf(subject, organizationId);
    expect(await close(subject, made, startOf(1), Number.POSITIVE_INFINITY)).toBe(true);
    expect(await statementsOf(subject, organizationId)).toEqual(before);
    expect(await violated(subject, organizationId)).toEqual([]);
    await subject.tamper(
      `update monthly_statement set charge_total = charge_total - 1 where organization_id = '${organizationId}' and month = ${startOf(0)}`,
    );
    expect(await violated(subject, organizationId)).toEqual([
      expect.stringMatching(/ has opening 999990, but the books say 999989\.$/),
    ]);
    await subject.tamper(
      `update monthly_statement set charge_total = charge_total + 1 where organization_id = '${organizationId}' and month = ${startOf(0)}`,
    );
  });
}

function endCases(subject: Subject): void {
  test("a closed organization gets its final statement, and none of later months", async () => {
    const made = await owner(subject);
    const { organizationId } = made;
    const of = `where organization_id = '${organizationId}'`;
    await subject.write(`update credit_grant set created_at = ${startOf(0)} ${of}`);
    await book(subject, made, 0, PLAIN);
    const rest = {
      amount: null,
      grantId: null,
      reference: null,
      note: "Closed",
      adjustmentId: `end_${organizationId}`,
    };
    await subject.one({ kind: "revoke", organizationId, ...rest });
    await subject.write(`update adjustment set made_at = ${startOf(2) - 1} ${of}`);
    await subject.write(`update organization set status = 'closed' where id = '${organizationId}'`);
    await storeDigests(subject.store, organizationId);
    const statements = (await statementsOf(subject, organizationId)).map(toMonthlyStatement);
    expect(statements.map(({ month, final, closing }) => [month, final, closing])).toEqual([
      ["2024-01", false, 0.999995],
      ["2024-02", true, 0],
    ]);
    const digests = await subject.books.monthDigests(organizationId, {});
    expect(digests.length).toBeGreaterThan(2);
    expect(await violated(subject, organizationId)).toEqual([]);
    await subject.write(`update organization set status = 'active' where id = '${organizationId}'`);
  });

  test("the playground gets no statement, and a digest that was lost is stored again without one", async () => {
    await storeDigests(subject.store, "org_playground");
    expect(await statementsOf(subject, "org_playground")).toEqual([]);
    const { organizationId } = await history(subject);
    await storeDigests(subject.store, organizationId);
    const before = await statementsOf(subject, organizationId);
    await subject.write(`delete from month_digest where organization_id = '${organizationId}'`);
    await storeDigests(subject.store, organizationId, 500, 99, { ...STATEMENT_TERMS, numberPrefix: "X-" });
    expect(await statementsOf(subject, organizationId)).toEqual(before);
    await subject.expectSound(organizationId);
  });
}
