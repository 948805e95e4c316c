import { expect, test } from "vitest";
import { grantOf, holdOf, referenceOf, type Subject, settleOf } from "./fixture.ts";

interface Used {
  organizationId: string;
  open: string;
  released: string;
  charged: string;
  expired: string;
  late: string;
}

/** An organization with a hold in every state. */
async function usedOrganization(subject: Subject): Promise<Used> {
  const organizationId = await subject.organization(1_000n);
  const [open, released, charged] = [1, 2, 3].map(() => holdOf(organizationId, 10n));
  const [expired, late] = [4, 5].map(() => holdOf(organizationId, 10n, -1_000));
  if (!(open && released && charged && expired && late)) throw new Error("a hold is missing");
  await subject.books.apply("holds", [open, released, charged, expired, late]);
  await subject.books.apply("durable", [
    { kind: "release", ...referenceOf(released) },
    settleOf(charged, 7),
    { kind: "expire", ...referenceOf(expired) },
    { kind: "expire", ...referenceOf(late) },
  ]);
  await subject.one(settleOf(late, 8));
  const [a, b, c, d, e] = [open, released, charged, expired, late].map(({ facts }) => facts.holdId) as [
    string,
    string,
    string,
    string,
    string,
  ];
  return { organizationId, open: a, released: b, charged: c, expired: d, late: e };
}

interface Damage {
  what: string;
  invariant: number;
  /** The statement that does the damage. */
  sql: (used: Used) => string;
  /** The hold that is to be named. */
  hold?: keyof Used;
}

const ofOrganization = ({ organizationId }: Used) => `where organization_id = '${organizationId}'`;
const ofHold = (used: Used, hold: keyof Used) => `${ofOrganization(used)} and id = '${used[hold]}'`;
const ofEvent = (used: Used, hold: keyof Used) => `${ofOrganization(used)} and hold_id = '${used[hold]}'`;

const DAMAGES: Damage[] = [
  {
    what: "something lapsed of nothing",
    invariant: 1,
    sql: ({ organizationId }) =>
      `insert into adjustment (organization_id, id, kind, amount, draws, made_at) values ('${organizationId}', 'l', 'lapse', 3, '[]', 1)`,
  },
  {
    what: "a revocation is not one of any grant",
    invariant: 1,
    sql: ({ organizationId }) =>
      `insert into adjustment (organization_id, id, kind, amount, draws, made_at) values ('${organizationId}', 'a', 'revoke', 3, '[]', 1)`,
  },
  {
    what: "a credit gave back nothing",
    invariant: 3,
    sql: ({ organizationId }) =>
      `insert into adjustment (organization_id, id, kind, amount, draws, made_at) values ('${organizationId}', 'a', 'credit', 3, '[]', 1)`,
  },
  {
    what: "a token holds more than its open holds",
    invariant: 2,
    sql: ({ organizationId }) =>
      `insert into token_balance (organization_id, token_id, cap, held, spent) values ('${organizationId}', 'tok', 9, 1, 0)`,
  },
  {
    what: "a token has spent less than was charged to it",
    invariant: 3,
    sql: ({ organizationId }) =>
      `insert into token_balance (organization_id, token_id, cap, held, spent) values ('${organizationId}', 'tok_contract', 9, 10, 1)`,
  },
  {
    what: "a token has spent less than was charged to one that shares its cap",
    invariant: 3,
    sql: ({ organizationId }) =>
      `insert into token_balance (organization_id, token_id, budget_id, cap, held, spent) values
        ('${organizationId}', 'tok_first', null, 9, 10, 1), ('${organizationId}', 'tok_contract', 'tok_first', 0, 0, 0)`,
  },
  {
    what: "an idempotency key is of a hold that was made without one",
    invariant: 9,
    sql: ({ organizationId, charged }) =>
      `insert into idempotency_key (organization_id, key, fingerprint, hold_id, created_at, expires_at) values ('${organizationId}', 'k', 'f', '${charged}', 1, 2)`,
  },
  {
    what: "credits appear in the balance",
    invariant: 1,
    sql: (used) => `update balance set granted = granted + 1, available = available + 1 ${ofOrganization(used)}`,
  },
  {
    what: "the parts of a balance do not add up",
    invariant: 1,
    sql: (used) => `update balance set expired = expired + 1 ${ofOrganization(used)}`,
  },
  {
    what: "credits appear in a grant",
    invariant: 1,
    sql: (used) => `update credit_grant set remaining = remaining + 1 ${ofOrganization(used)}`,
  },
  { what: "a balance is gone", invariant: 1, sql: (used) => `delete from balance ${ofOrganization(used)}` },
  {
    what: "more is held than holds say",
    invariant: 2,
    sql: (used) => `update balance set held = held + 1, available = available - 1 ${ofOrganization(used)}`,
  },
  {
    what: "an open hold is larger than what is held",
    invariant: 2,
    sql: (used) => `update hold set amount = amount + 1 ${ofHold(used, "open")}`,
  },
  {
    what: "more is spent than events say",
    invariant: 3,
    sql: (used) => `update balance set spent = spent + 1, available = available - 1 ${ofOrganization(used)}`,
  },
  {
    what: "an event costs less than was spent",
    invariant: 3,
    sql: (used) => `update usage_event set cost = cost - 1 ${ofEvent(used, "charged")}`,
  },
  {
    what: "a hold is charged more than its events cost",
    invariant: 4,
    sql: (used) => `update hold set charged = charged + 1 ${ofHold(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "a charged hold is released",
    invariant: 4,
    sql: (used) => `update hold set state = 'released' ${ofHold(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "a charged hold is open again",
    invariant: 4,
    sql: (used) => `update hold set state = 'open' ${ofHold(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "a released hold has a shortfall",
    invariant: 4,
    sql: (used) => `update hold set shortfall = 1 ${ofHold(used, "released")}`,
    hold: "released",
  },
  {
    what: "an open hold draws on nothing",
    invariant: 4,
    sql: (used) => `update hold set draws = '[]' ${ofHold(used, "open")}`,
    hold: "open",
  },
  {
    what: "a hold is gone and its event is not",
    invariant: 4,
    sql: (used) => `delete from hold ${ofHold(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "less than nothing is available",
    invariant: 6,
    sql: (used) => `update balance set available = -1 ${ofOrganization(used)}`,
  },
  {
    what: "a hold is charged less than nothing",
    invariant: 6,
    sql: (used) => `update hold set charged = -1 ${ofHold(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "a token has spent less than nothing",
    invariant: 6,
    sql: ({ organizationId }) =>
      `insert into token_balance (organization_id, token_id, cap, held, spent) values ('${organizationId}', 'tok', 1, 0, -1)`,
  },
  {
    what: "a charged hold has lost its event",
    invariant: 7,
    sql: (used) => `delete from usage_event ${ofEvent(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "an expired hold has lost its event",
    invariant: 7,
    sql: (used) => `delete from usage_event ${ofEvent(used, "expired")}`,
    hold: "expired",
  },
  {
    what: "an event 1 stands alone",
    invariant: 7,
    sql: (used) => `update usage_event set sequence = 1 ${ofEvent(used, "charged")}`,
    hold: "charged",
  },
  {
    what: "an event 1 follows a charge that was no expiry",
    invariant: 7,
    sql: (used) => `update usage_event set ending = 'complete' ${ofEvent(used, "late")} and sequence = 0`,
    hold: "late",
  },
  {
    what: "an expired hold has an event 1",
    invariant: 7,
    sql: (used) => `update hold set state = 'expired' ${ofHold(used, "late")}`,
    hold: "late",
  },
  {
    what: "an open hold is long overdue",
    invariant: 8,
    sql: (used) => `update hold set expires_at = expires_at - 160000 ${ofHold(used, "open")}`,
    hold: "open",
  },
];

export function verifyCases(subject: Subject): void {
  test("books that were used in every way are sound", async () => {
    const { organizationId } = await usedOrganization(subject);
    const verification = await subject.books.verify(organizationId);
    expect(verification).toEqual({ organizationId, holds: 5, events: 4, violations: [] });
  });

  test.each(DAMAGES.map((damage) => [damage.invariant, damage.what, damage] as const))(
    "invariant %i is found broken when %s",
    async (invariant, _, damage) => {
      const used = await usedOrganization(subject);
      await subject.tamper(damage.sql(used));
      const { violations } = await subject.books.verify(used.organizationId);
      const holdId = damage.hold === undefined ? null : used[damage.hold];
      expect(violations).toContainEqual(expect.objectContaining({ invariant, holdId, ...idOf(used) }));
      expect(violations.every(({ message }) => message.length > 10)).toBe(true);
    },
  );

  test("damage to one organization is not told of another", async () => {
    const [broken, sound] = [await usedOrganization(subject), await usedOrganization(subject)];
    await subject.tamper(`update balance set granted = granted + 1 ${ofOrganization(broken)}`);
    await subject.expectSound(sound.organizationId);
  });

  test("a hold that waits for the sweeper a little is no violation", async () => {
    const organizationId = await subject.organization(10n);
    await subject.held(holdOf(organizationId, 1n, -5_000));
    await subject.expectSound(organizationId);
    await subject.held(holdOf(organizationId, 1n, -40_000));
    expect((await subject.books.verify(organizationId)).violations).toMatchObject([{ invariant: 8 }]);
  });

  test("a closing stands for the events that were retired", async () => {
    const used = await usedOrganization(subject);
    await subject.tamper(`delete from usage_event ${ofEvent(used, "charged")}`);
    await subject.tamper(`delete from hold ${ofHold(used, "charged")}`);
    await subject.tamper(
      `insert into closing (organization_id, charged_day, event_count, cost_sum) values ('${used.organizationId}', 0, 1, 7)`,
    );
    const verification = await subject.books.verify(used.organizationId);
    expect(verification).toMatchObject({ holds: 4, events: 4, violations: [] });
    expect(await subject.books.lastClosedDay(used.organizationId)).toBe(0);
    expect(await subject.books.lastClosedDay(await subject.organization())).toBeUndefined();
  });
}

/** Without its unique index a reference can stand twice; nothing else lets the test get there. */
export function repeatedReferenceCase(subject: Subject): void {
  test("invariant 9 is found broken when a reference was granted twice", async () => {
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

function idOf({ organizationId }: Used): { organizationId: string } {
  return { organizationId };
}
