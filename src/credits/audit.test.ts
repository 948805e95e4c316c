import { beforeEach, describe, expect, test } from "vitest";
import { MemoryBooks } from "../../test/support/memory-books.ts";
import type { BookingAudit } from "./audit.ts";
import type { CreditTransition, GrantTransition, RevokeTransition } from "./books.ts";
import type { HoldFacts } from "./facts.ts";
import { FREE, NO_TOKENS } from "./price.ts";

const ORGANIZATION = "org_1";

let books: MemoryBooks;
beforeEach(() => {
  books = new MemoryBooks();
  books.addOrganization(ORGANIZATION);
});

function spend(input: number): void {
  const request = { tokenId: "tok_1", requestId: "req_1", model: "gpt", upstream: "openai/gpt", metadata: null };
  const prices = { ...FREE, input: 1_000_000n };
  const facts: HoldFacts = { holdId: "hold", organizationId: ORGANIZATION, prices, idempotencyKey: null, ...request };
  const tokens = { ...NO_TOKENS, input };
  books.bookOne({ kind: "settle", facts, tokens, basis: "reported", end: "complete" });
}

describe("an audit entry", () => {
  const auditOf = (id: string, rest: Partial<BookingAudit> = {}): BookingAudit => {
    const actor = {
      actorKind: "operator",
      actorId: "adm_1",
      actorName: null,
      address: "::1",
      requestId: "req_1",
    } as const;
    return {
      id,
      ...actor,
      action: "credits.test",
      after: { amount: "asked", note: "why" },
      ...rest,
    };
  };
  const granting = (grantId: string, audit: BookingAudit): GrantTransition => {
    const terms = { amount: 5_000_000n, effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: "invoice" };
    return { kind: "grant", organizationId: ORGANIZATION, grantId, ...terms, audit };
  };
  const revoking = (adjustmentId: string, audit: BookingAudit, amount: bigint | null = null): RevokeTransition => {
    const terms = { amount, grantId: null, reference: "chargeback", note: null };
    return { kind: "revoke", organizationId: ORGANIZATION, adjustmentId, ...terms, audit };
  };
  const crediting = (adjustmentId: string, audit: BookingAudit, amount = 1_000_000n): CreditTransition => {
    const terms = { amount, holdId: null, expiresAtMs: null, priority: 0, reference: "case", note: null };
    return { kind: "credit", organizationId: ORGANIZATION, adjustmentId, ...terms, audit };
  };
  const entries = () => [...books.auditEntries.values()];

  test("The entry is written with the first booking, at its time and with its amount.", () => {
    books.bookOne(granting("g", auditOf("audit_1")));
    spend(2_000_000);
    books.nowMs += 10;
    books.bookOne(revoking("r", auditOf("audit_2")));
    books.bookOne(crediting("c", auditOf("audit_3")));
    const actor = { actorKind: "operator", actorId: "adm_1", actorName: null, address: "::1", requestId: "req_1" };
    const common = { ...actor, action: "credits.test", organizationId: ORGANIZATION, before: null };
    const [first, second] = [...books.grants.values()];
    const [revocation, credit] = [...books.adjustments.values()];
    const granted = { credit_grant: [{ ...first, remaining: 5_000_000n, revoked: 0n }] };
    const revoked = { adjustment: [revocation] };
    const credited = { adjustment: [credit], credit_grant: [second] };
    expect(entries()).toEqual([
      { id: "audit_1", madeAtMs: 1_000, subjectId: "g", after: { amount: 5, note: "why" }, rows: granted, ...common },
      { id: "audit_2", madeAtMs: 1_010, subjectId: "r", after: { amount: 3, note: "why" }, rows: revoked, ...common },
      { id: "audit_3", madeAtMs: 1_010, subjectId: "c", after: { amount: 1, note: "why" }, rows: credited, ...common },
    ]);
  });

  test("The entry is not written for a repetition, by id or by reference, in the same batch or in a later one.", () => {
    books.book([granting("g", auditOf("audit_1")), granting("g", auditOf("audit_1"))]);
    books.bookOne(granting("g2", auditOf("audit_2")));
    spend(2_000_000);
    books.book([revoking("r", auditOf("audit_3")), revoking("r2", auditOf("audit_4"))]);
    books.bookOne(revoking("r", auditOf("audit_3")));
    books.book([crediting("c", auditOf("audit_5")), crediting("c2", auditOf("audit_6"))]);
    books.bookOne(crediting("c", auditOf("audit_5")));
    expect(entries().map(({ id }) => id)).toEqual(["audit_1", "audit_3", "audit_5"]);
  });

  test("The entry is not written for a refused booking, nor for a transition without one.", () => {
    books.bookOne({ ...granting("g", auditOf("audit_0")), reference: "other", audit: null });
    const { audit: _, ...unaudited } = granting("g2", auditOf("audit_0"));
    books.bookOne({ ...unaudited, amount: 1n });
    books.bookOne(granting("g3", auditOf("audit_1")));
    books.bookOne(revoking("r", auditOf("audit_2"), 9_000_000n));
    books.bookOne(crediting("c", auditOf("audit_3")));
    expect(entries()).toEqual([]);
  });
});
