import { BULK_TOKEN } from "../../support/bulk.ts";
import { drawsOf, type FuzzBooks, type RequestRow, sumOf } from "./books.ts";

/** The kind of row that history written directly has; no client sent it. */

/** Returns the faults of the books as a whole: the invariants of docs/ledger.md that tables alone can show. */
export function bookFaults(books: FuzzBooks): string[] {
  const known = new Set(books.organizations.map(({ id }) => id));
  const faults: string[] = [];
  for (const table of ["balances", "budgets", "grants", "holds", "requests", "adjustments", "keys"] as const) {
    const strange = books[table].filter((row) => !known.has(row.organization_id));
    if (strange.length > 0) faults.push(`${table}: ${strange.length} rows of no organization`);
  }
  const open = new Set(books.holds.map(({ id }) => id));
  for (const { id } of books.requests) if (open.has(id)) faults.push(`${id} is both open and ended`);
  return [...faults, ...books.balances.flatMap((balance) => balanceFaults(books, balance)), ...keyFaults(books)];
}

function balanceFaults(books: FuzzBooks, balance: FuzzBooks["balances"][number]): string[] {
  const { organization_id: id, granted, available, held, spent, expired } = balance;
  const faults: string[] = [];
  const expect = (isTrue: boolean, text: string) => {
    if (!isTrue) faults.push(`${id}: ${text}`);
  };
  const of = <R extends { organization_id: string }>(rows: readonly R[]) =>
    rows.filter((row) => row.organization_id === id);
  const [grants, holds, requests, adjustments] = [
    of(books.grants),
    of(books.holds),
    of(books.requests),
    of(books.adjustments),
  ];
  const closing = of(books.closings)[0];
  const cost =
    sumOf([...requests, ...(closing ? [closing] : [])].map((row) => row.cost)) +
    sumOf(adjustments.map(({ amount }) => amount));
  expect(
    granted === available + held + spent + expired,
    `granted ${granted} is not ${available}+${held}+${spent}+${expired}`,
  );
  expect(
    [granted, available, held, spent, expired].every((amount) => amount >= 0n),
    "an amount is below 0",
  );
  expect(
    granted === sumOf(grants.map(({ amount, revoked }) => amount - revoked)),
    `granted ${granted} is not its grants`,
  );
  expect(
    available === sumOf(grants.map(({ remaining }) => remaining)),
    `available ${available} is not its grants' rest`,
  );
  expect(held === sumOf(holds.map(({ amount }) => amount)), `held ${held} is not its open holds`);
  expect(spent === cost, `spent ${spent} is not what its requests cost, ${cost}`);
  const drawn = new Map<string, bigint>();
  const take = (grant: string, amount: bigint) => drawn.set(grant, (drawn.get(grant) ?? 0n) + amount);
  for (const row of [...holds, ...requests, ...adjustments])
    for (const { grant, amount } of drawsOf(row)) take(grant, amount);
  for (const { dimension, name, amount } of of(books.parts)) if (dimension === "grant") take(name, amount);
  for (const grant of grants) {
    const taken = drawn.get(grant.id) ?? 0n;
    drawn.delete(grant.id);
    expect(
      grant.remaining + taken === grant.amount - grant.revoked,
      `grant ${grant.id} has ${grant.remaining} left after ${taken}`,
    );
  }
  expect(drawn.size === 0, `draws on grants that do not exist: ${[...drawn.keys()].join()}`);
  for (const budget of of(books.budgets)) {
    const name = `budget ${budget.budget_id}, ${budget.value}, ${budget.window_at}`;
    const use = JSON.stringify([budget.budget_id, Number(budget.window_at), budget.value]);
    const isOf = (row: { budgets: string | null }) => row.budgets?.includes(use) === true;
    const credited = adjustments.filter(isOf).map(({ kind, amount }) => (kind === "credit" ? -amount : amount));
    const used = budget.opening + sumOf(requests.filter(isOf).map((row) => row.cost)) + sumOf(credited);
    const open = sumOf(holds.filter(isOf).map(({ amount }) => amount));
    expect(budget.spent === used, `${name} has spent ${budget.spent}, and its requests cost ${used}`);
    expect(budget.held === open, `${name} holds ${budget.held}, and its open holds ${open}`);
    expect(budget.spent + budget.held <= budget.amount + budget.raised, `${name} is above its amount`);
  }
  return faults;
}

/** A key charges once, and names the request that it was charged for. */
function keyFaults(books: FuzzBooks): string[] {
  const keyed = books.requests.filter(
    ({ idempotency_key, ending }) => idempotency_key !== null && ending !== "released",
  );
  const nameOf = (row: RequestRow) => `${row.organization_id} ${row.idempotency_caller_id} ${row.idempotency_key}`;
  const faults: string[] = [];
  const charged = Map.groupBy(keyed, nameOf);
  for (const [name, rows] of charged)
    if (rows.length > 1) faults.push(`the key ${name} was charged ${rows.length} times`);
  for (const { organization_id, caller_id, key, hold_id } of books.keys) {
    const row = charged.get(`${organization_id} ${caller_id} ${key}`)?.[0];
    if (row !== undefined && row.id !== hold_id)
      faults.push(`the key ${key} names ${hold_id}, and ${row.id} was charged`);
  }
  return faults;
}

/** Returns the faults of one row by itself: its arithmetic, and its bounds. */
export function rowFaults(row: RequestRow, late: FuzzBooks["adjustments"][number] | undefined): string[] {
  const tokens = row.tokens.map((count, index) => count + (late?.tokens[index] ?? 0n));
  const [cost, shortfall] = [row.cost + (late?.amount ?? 0n), row.shortfall + (late?.shortfall ?? 0n)];
  const pico = sumOf(tokens.map((count, index) => count * (row.prices[index] ?? 0n)));
  const price = row.ending === "released" && late === undefined ? 0n : (pico + 999_999n) / 1_000_000n;
  const faults: string[] = [];
  if (cost + shortfall !== price)
    faults.push(`it cost ${cost} and ${shortfall} more, and its tokens ${tokens} cost ${price}`);
  if (shortfall !== 0n) faults.push(`a shortfall of ${shortfall}`);
  if (cost > row.amount) faults.push(`it cost ${cost}, and ${row.amount} were held`);
  if (cost < 0n) faults.push(`it cost ${cost}`);
  return faults;
}

/** Returns the differences of a copy that was made earlier from the books: booked rows never change. */
export function copyFaults(copy: FuzzBooks, books: FuzzBooks): string[] {
  const faults: string[] = [];
  for (const table of ["requests", "adjustments", "organizations"] as const) {
    const now = new Map(books[table].map((row) => [row.id, textOf(row)]));
    for (const row of copy[table]) {
      const isRemoved = table === "requests" && (row as RequestRow).token_id === BULK_TOKEN && !now.has(row.id);
      if (!isRemoved && now.get(row.id) !== textOf(row)) faults.push(`copy: ${textOf(row)} is ${now.get(row.id)}`);
    }
  }
  return faults;
}

/** Returns the differences of two books of which one is a copy of the other, and nothing happened since. */
export function differences(one: FuzzBooks, other: FuzzBooks): string[] {
  return (Object.keys(one) as (keyof FuzzBooks)[]).flatMap((table) => {
    const [a, b] = [one[table], other[table]].map((rows) => rows.map(textOf).sort().join("\n"));
    return a === b ? [] : [`a copy differs in ${table}`];
  });
}

function textOf(row: object): string {
  const sorted = Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(sorted, (_key, value) => (typeof value === "bigint" ? String(value) : value));
}
