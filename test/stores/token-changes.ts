import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { afterAll, beforeAll, expect, test } from "vitest";
import { COMMAND_ACTOR } from "../../src/admin/audit.ts";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { AccountCore } from "../../src/operations/core.ts";
import { endToken, updateToken } from "../../src/operations/tokens.ts";
import type { TokenBudget } from "../../src/stores/queries/accounts.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import type { Store } from "../../src/stores/store.ts";
import { close, type Owner } from "./closings.ts";
import { referenceOf, renewOf, type Subject, settleOf, tokenHoldOf } from "./fixture.ts";

const ROUNDS = 12;

/** Changes of the terms of tokens, on two instances as on two nodes, and the sums that a cap begins with. */
export function tokenChangeCases(subject: Subject): void {
  let other: Store;
  beforeAll(async () => {
    other = await subject.openAnother();
  });
  afterAll(() => other.close());
  const coreOf = ({ accounts }: Store) => {
    return { accounts, clock: Date.now, random: randomBytes, newId: () => v7(), actor: COMMAND_ACTOR };
  };
  const tools: Tools = {
    subject,
    nodes: () => [coreOf(subject.store), coreOf(other)] as const,
    otherBooks: () => other.books,
    recordsOf: async (organizationId) => {
      const page = { organizationId, action: "token.change", before: null, limit: 200 };
      return (await subject.store.admin.audit(page)).reverse();
    },
    budgetOf: async (id) => (await subject.store.accounts.token(id))?.budget,
  };
  termCases(tools);
  lowerCapCases(tools);
  newCapCases(tools);
  capRaceCases(tools);
}

interface Tools {
  subject: Subject;
  /** Services that the operations of two instances use. */
  nodes(): readonly [AccountCore, AccountCore];
  otherBooks(): Books;
  recordsOf(organizationId: string): Promise<AuditRow[]>;
  budgetOf(id: string): Promise<TokenBudget | null | undefined>;
}

function termCases({ subject, nodes, recordsOf, budgetOf }: Tools): void {
  test("concurrent changes of different terms of a token are all kept, each with an audit record", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const organizationId = await subject.organization(100n);
      const id = await subject.cappedToken(organizationId, null);
      const changes = [
        { name: `Round ${round}` },
        { cap: BigInt(round + 1) },
        { limits: { requestsPerMinute: round + 1 } },
        { models: ["sandbox/echo"] },
        { scopes: ["models:read"] },
        { expiresAtMs: Date.now() + 3_600_000 },
        { pinned: { round: String(round) } },
      ];
      const made = await Promise.all(
        changes.map((change, index) => updateToken(nodes()[(round + index) % 2 === 0 ? 0 : 1], id, change)),
      );
      expect(made.map((row) => row.id)).toEqual(changes.map(() => id));
      const { cap, ...terms } = Object.assign({}, ...changes);
      expect(await subject.store.accounts.token(id)).toMatchObject({ ...terms, budget: { cap, held: 0n, spent: 0n } });
      const records = await recordsOf(organizationId);
      expect(records).toHaveLength(changes.length);
      expect(records.map(({ before }) => before)).toContainEqual({ cap: null });
      await subject.expectSound(organizationId);
    }
  });

  test("the audit records of concurrent changes of a cap form one chain of values", async () => {
    const organizationId = await subject.organization();
    const id = await subject.cappedToken(organizationId, 1_000_000n);
    const caps = Array.from({ length: ROUNDS }, (_, index) => BigInt(index + 2) * 1_000_000n);
    await Promise.all(caps.map((cap, index) => updateToken(nodes()[index % 2 === 0 ? 0 : 1], id, { cap })));
    const records = await recordsOf(organizationId);
    expect(records).toHaveLength(ROUNDS);
    const next = new Map(records.map(({ before, after }) => [before?.cap, after?.cap]));
    let value: unknown = "1";
    for (let step = 0; step < ROUNDS; step += 1) value = next.get(value);
    expect(value).toBe(String(((await budgetOf(id))?.cap ?? 0n) / 1_000_000n));
  });
}

function lowerCapCases({ subject, nodes, recordsOf, budgetOf }: Tools): void {
  test("a change to the present terms is neither written nor recorded, and an ended token is not changed", async () => {
    const organizationId = await subject.organization();
    const id = await subject.cappedToken(organizationId, 5n);
    const [core] = nodes();
    const same = { name: "capped", models: null, limits: null, cap: 5n, expiresAtMs: null };
    expect(await updateToken(core, id, same)).toMatchObject({ id });
    await endToken(core, id);
    await expect(updateToken(core, id, { name: "late" })).rejects.toMatchObject({ code: "token_ended" });
    const present = await subject.store.accounts.token(id);
    if (present === undefined) throw new Error("no token");
    const record = {
      ...(await subject.store.admin.audit({ organizationId, action: null, before: null, limit: 1 }))[0],
    };
    const audit = { ...record, id: v7() } as Parameters<Store["accounts"]["changeToken"]>[2];
    expect(await subject.store.accounts.changeToken({ ...present, revokedAtMs: null }, { cap: null }, audit)).toBe(
      false,
    );
    await expect(updateToken(core, "tok_none", { name: "x" })).rejects.toMatchObject({ code: "not_found" });
    expect(await recordsOf(organizationId)).toEqual([]);
    expect(await budgetOf(id)).toEqual({ cap: 5n, held: 0n, spent: 0n });
  });

  test("a cap below what is spent refuses new requests, and running ones are charged in full", async () => {
    const organizationId = await subject.organization(100n);
    const id = await subject.cappedToken(organizationId, 60n);
    await subject.one(settleOf(await subject.held(tokenHoldOf(organizationId, id, 20n)), 20));
    const running = await subject.held(tokenHoldOf(organizationId, id, 30n));
    await updateToken(nodes()[0], id, { cap: 10n });
    const refused = await subject.one(tokenHoldOf(organizationId, id, 1n));
    expect(refused).toMatchObject({ outcome: "insufficient", budget: { isCap: true }, reach: 0n });
    expect(await subject.one(settleOf(running, 30))).toMatchObject({ outcome: "charged", charged: 30n, shortfall: 0n });
    expect(await budgetOf(id)).toEqual({ cap: 10n, held: 0n, spent: 50n });
    await updateToken(nodes()[0], id, { cap: null });
    expect(await budgetOf(id)).toBeNull();
    await subject.held(tokenHoldOf(organizationId, id, 50n));
    await subject.expectSound(organizationId);
  });
}

function newCapCases({ subject, nodes, budgetOf }: Tools): void {
  test("a new cap counts all that the token and those before it in rotation hold and have spent", async () => {
    const organizationId = await subject.organization(1_000n);
    const first = await subject.cappedToken(organizationId, null);
    const stranger = await subject.cappedToken(organizationId, null);
    await subject.one(settleOf(await subject.held(tokenHoldOf(organizationId, stranger, 100n)), 100));
    // Charged two months ago, and closed: 7 of the row and 5 of one that is booked long after it began.
    const old = tokenHoldOf(organizationId, first, 7n);
    old.facts.holdId = v7({ msecs: Date.now() - 70 * 86_400_000 });
    await subject.one(settleOf(await subject.held(old), 7));
    const at = Date.now() - 70 * 86_400_000;
    await subject.write(
      `update request set made_at = ${at}, ended_at = ${at}, is_late = 0 where id = '${old.facts.holdId}'`,
    );
    const credits: Owner = { organizationId, tokenId: first };
    expect(await close(subject, credits, Date.now() - 40 * 86_400_000, 100)).toBe(true);
    const lateId = v7({ msecs: Date.now() - 3 * 86_400_000 });
    const late = { ...tokenHoldOf(organizationId, first, 5n) };
    await subject.one(settleOf(await subject.held({ ...late, facts: { ...late.facts, holdId: lateId } }), 5));
    const second = await subject.successor(organizationId, first);
    const recovered = await subject.held(tokenHoldOf(organizationId, second, 30n, first));
    await subject.one(renewOf(recovered, 20, -1_000), "holds");
    await subject.one({ kind: "expire", ...referenceOf(recovered) });
    await subject.one(settleOf(recovered, 25));
    const refunded = await subject.held(tokenHoldOf(organizationId, second, 11n, first));
    await subject.one(settleOf(refunded, 11));
    const terms = { expiresAtMs: null, reference: null, note: null, priority: 0 };
    const { holdId } = refunded.facts;
    await subject.one({ kind: "credit", organizationId, adjustmentId: v7(), amount: 4n, holdId, ...terms });
    const running = await subject.held(tokenHoldOf(organizationId, first, 9n));
    const third = await subject.successor(organizationId, second);
    await updateToken(nodes()[1], second, { cap: 500n });
    const budget = { cap: 500n, held: 9n, spent: 7n + 5n + 25n + 11n - 4n };
    for (const id of [first, second, third]) expect(await budgetOf(id)).toEqual(budget);
    expect(await budgetOf(stranger)).toBeNull();
    await subject.expectSound(organizationId);
    await subject.one(settleOf(running, 6));
    expect(await budgetOf(third)).toEqual({ cap: 500n, held: 0n, spent: 50n });
    await updateToken(nodes()[0], first, { cap: null });
    for (const id of [first, second, third]) expect(await budgetOf(id)).toBeNull();
    await subject.expectSound(organizationId);
  });
}

function capRaceCases({ subject, nodes, otherBooks, budgetOf }: Tools): void {
  test("caps that are set, changed and removed during holds, charges and rotations count exactly", async () => {
    const organizationId = await subject.organization(1_000_000n);
    let newest = await subject.cappedToken(organizationId, null);
    const tokens = [newest];
    for (let round = 0; round < ROUNDS; round += 1) {
      const use = async (index: number) => {
        const hold = tokenHoldOf(organizationId, tokens[index % tokens.length] ?? newest, 5n, tokens[0]);
        const books = index % 2 === 0 ? subject.store.books : otherBooks();
        const [held] = await books.apply("holds", [hold]);
        if (held?.outcome === "held" && index % 3 > 0) await books.apply("durable", [settleOf(hold, index % 5)]);
      };
      const rotate = async () => {
        newest = await subject.successor(organizationId, newest);
        tokens.push(newest);
      };
      const caps = [round % 3 === 2 ? null : BigInt(1_000 + round), BigInt(2_000 + round)];
      await Promise.all([
        ...Array.from({ length: 24 }, (_, index) => use(index)),
        ...caps.map((cap, index) => updateToken(nodes()[index === 0 ? 0 : 1], tokens[0] ?? newest, { cap })),
        ...(round < 3 ? [rotate()] : []),
      ]);
      await subject.expectSound(organizationId);
    }
    const budgets = await Promise.all(tokens.map(budgetOf));
    expect(new Set(budgets.map((budget) => String(budget?.cap))).size).toBe(1);
  });
}
