import fc from "fast-check";
import pg from "pg";
import { v7 } from "uuid";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { close, type Owner, owner, startOf, statementFrom } from "../../../test/stores/closings.ts";
import { factsOf, grantOf, holdOf, randomId, Subject, settleOf } from "../../../test/stores/fixture.ts";
import { pastPartitions } from "../../../test/support/bulk.ts";
import { countOf, seedOfRun, timeoutOf } from "../../../test/support/counts.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { ClosingTally } from "../../credits/closing.ts";
import type { Store } from "../store.ts";
import { openPostgresSide } from "./copy-side.ts";
import { openPostgresStore } from "./postgres.ts";

const DAY_MS = 86_400_000;
const EVERYTHING = Number.POSITIVE_INFINITY;
const RUNS = countOf("months");

/** The partitions that every test begins with. */
const PARTITIONS = ["request_202401", "request_202402", "request_202403", "request_202404", "request_202405"];

describe.skipIf(!hasPostgres)("the partition of a closed month", () => {
  let database: TestDatabase;
  let beside: pg.Client;
  const stores: Store[] = [];
  let subject: Subject;
  beforeEach(async () => {
    database = await createTestDatabase();
    const open = async () => {
      stores.push(await openPostgresStore({ url: database.url, role: "service" }));
      return stores.at(-1) as Store;
    };
    const store = await open();
    beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
    for (const statement of pastPartitions(startOf(0), startOf(4))) await beside.query(statement);
    const write = async (statement: string) => void (await beside.query(statement));
    subject = new Subject();
    const read = async (statement: string) => (await beside.query(statement)).rows;
    subject.start({ store, openAnother: open, write, tamper: write, read, close: async () => {} });
  });
  afterEach(async () => {
    await beside.end();
    for (const store of stores.splice(0)) await store.close();
    await database.drop();
  });

  const partitions = async () =>
    (await subject.read("select relname from pg_class where relname ~ '^request_2024[0-9]*(_rest)?$' order by 1")).map(
      ({ relname }) => relname,
    );

  /** Charges a request that began on a day of a month, and is booked some days later. */
  async function charge({ organizationId }: Owner, month: number, day: number, bookedAfterDays = 0): Promise<string> {
    const beganMs = startOf(month) + day * DAY_MS;
    const endedMs = beganMs + bookedAfterDays * DAY_MS;
    const holdId = v7({ msecs: beganMs });
    const hold = { ...holdOf(organizationId, 9n), facts: factsOf(organizationId, { holdId }) };
    await subject.held(hold);
    await subject.one(settleOf(hold, 5));
    const isLate = bookedAfterDays > 1 ? 1 : 0;
    await beside.query(
      `update request set made_at = ${beganMs}, ended_at = ${endedMs}, is_late = ${isLate} where id = '${holdId}'`,
    );
    return holdId;
  }

  const idsLeft = async () => (await subject.read("select id from request order by id")).map(({ id }) => id);

  async function removeMonths(store: Store, beforeMs: number): Promise<string[]> {
    const outcomes: string[] = [];
    while (outcomes.at(-1) !== "none") outcomes.push(await store.closings.removeMonth(beforeMs));
    return outcomes;
  }

  test("it is dropped, and its open requests keep a partition", async () => {
    const [one, other] = [await owner(subject), await owner(subject)];
    for (let day = 0; day < 8; day += 1) await charge(one, 0, day);
    await charge(other, 0, 3);
    const across = await charge(other, 0, 30.5, 0.75);
    const later = await charge(one, 1, 3);
    expect(await partitions()).toEqual(PARTITIONS);
    const before = await statementFrom(subject, one, startOf(1));
    expect(await close(subject, one, startOf(1), 4)).toBe(false);
    // The other organization can still book.
    expect(await removeMonths(subject.store, startOf(1))).toEqual(["none"]);
    expect(await close(subject, other, startOf(1), EVERYTHING)).toBe(true);
    expect(await idsLeft()).toEqual([across, later]);
    const { rows } = await beside.query("select tableoid::regclass::text as name from request order by id");
    expect(rows.map(({ name }) => name)).toEqual(["request_202401", "request_202402"]);
    expect(await partitions()).toEqual(PARTITIONS);
    expect(await statementFrom(subject, one, startOf(1))).toEqual(before);
    for (const { organizationId } of [one, other]) await subject.expectSound(organizationId);
    for (const each of [one, other]) expect(await close(subject, each, startOf(3), EVERYTHING)).toBe(true);
    expect(await idsLeft()).toEqual([]);
    // The empty ones of closed months are dropped, too.
    expect(await partitions()).toEqual(["request_202404", "request_202405"]);
    for (const { organizationId } of [one, other]) await subject.expectSound(organizationId);
    const late = await charge(await owner(subject), 0, 2);
    expect(await idsLeft()).toEqual([late]);
  });

  test(
    "a replacement loses no open request, and a statement stays the same",
    async () => {
      const past = fc.record({
        of: fc.integer({ min: 0, max: 1 }),
        month: fc.integer({ min: 0, max: 2 }),
        day: fc.integer({ min: 0, max: 27 }),
        bookedAfterDays: fc.constantFrom(0, 0, 0, 0.5, 3, 40),
      });
      const property = fc.asyncProperty(fc.array(past, { minLength: 3, maxLength: 12 }), async (requests) => {
        await beside.query("delete from request");
        for (const table of (await partitions()).map(String)) await beside.query(`drop table ${table}`);
        for (const statement of pastPartitions(startOf(0), startOf(4))) await beside.query(statement);
        const owners = [await owner(subject), await owner(subject)] as const;
        for (const { of, month, day, bookedAfterDays } of requests) {
          await charge(owners[of] ?? owners[0], month, day, bookedAfterDays);
        }
        for (const beforeMs of [startOf(1), startOf(2), startOf(4)]) {
          const open = await subject.read(
            `select id from request where not (ended_at < ${beforeMs} and id < '${v7({ msecs: beforeMs }).slice(0, 13)}') order by id`,
          );
          const statements = () => Promise.all(owners.map((each) => statementFrom(subject, each, beforeMs)));
          const before = await statements();
          for (const each of owners) expect(await close(subject, each, beforeMs, EVERYTHING)).toBe(true);
          expect(await statements()).toEqual(before);
          expect(await idsLeft()).toEqual(open.map(({ id }) => id));
          for (const { organizationId } of owners) await subject.expectSound(organizationId);
        }
      });
      await fc.assert(property, { numRuns: RUNS, seed: seedOfRun(), endOnFailure: true });
    },
    timeoutOf("months"),
  );

  /** Closes January of an organization with one open request, but removes nothing. */
  async function closed(): Promise<{ open: string; own: Owner }> {
    const own = await owner(subject);
    for (let day = 0; day < 6; day += 1) await charge(own, 0, day);
    const open = await charge(own, 0, 30.5, 0.75);
    const { closings } = subject.store;
    expect(await closings.freeze(own.organizationId, startOf(1))).toBe(true);
    const tally = new ClosingTally(own.organizationId, startOf(1), undefined, []);
    expect(await closings.sum(tally)).toBe(true);
    expect(await closings.close(tally)).toBe(true);
    expect(tally.requests).toBe(6);
    expect(await idsLeft()).toHaveLength(7);
    return { open, own };
  }

  test.each([
    ["a report", (side: pg.Client) => side.query("begin isolation level repeatable read; select 1 from request")],
    ["a booking", (side: pg.Client) => side.query("begin; insert into request select * from request where false")],
  ])("it stays while %s uses the requests, and others can book meanwhile", async (_, use) => {
    const { open, own } = await closed();
    const side = new pg.Client({ connectionString: database.url });
    await side.connect();
    await use(side);
    expect(await subject.store.closings.removeMonth(startOf(1))).toBe("locked");
    expect(await idsLeft()).toHaveLength(7);
    expect(await partitions()).not.toContain("request_202401_rest");
    const hold = await subject.held(holdOf(own.organizationId, 9n));
    expect(await subject.one(settleOf(hold, 5))).toMatchObject({ outcome: "charged" });
    await side.query("rollback");
    await side.end();
    expect(await removeMonths(subject.store, startOf(1))).toEqual(["removed", "none"]);
    expect((await idsLeft())[0]).toEqual(open);
    await subject.expectSound(own.organizationId);
  });

  test("a user who may not drop tables leaves it, and deletes its closed requests", async () => {
    const { open, own } = await closed();
    const role = `limited_${randomId("role").slice(-8).toLowerCase()}`;
    const url = new URL(database.url);
    [url.username, url.password] = [role, "secret"];
    await beside.query(`create role ${role} login password 'secret'`);
    await beside.query(`grant select, insert, update, delete on all tables in schema public to ${role}`);
    await beside.query(`revoke create on schema public from public`);
    try {
      const limited = await openPostgresStore({ url: url.href, role: "service" });
      stores.push(limited);
      expect(await limited.closings.removeMonth(startOf(1))).toBe("none");
      const closing = await limited.closings.find(own.organizationId);
      if (closing !== undefined) expect(await limited.closings.remove(closing, "")).toBeUndefined();
      expect(await idsLeft()).toEqual([open]);
      await limited.close();
    } finally {
      await beside.query(`drop owned by ${role}`);
      await beside.query(`drop role ${role}`);
    }
  });

  test("a copy that has begun keeps it", async () => {
    const { own } = await closed();
    const side = await openPostgresSide(database.url);
    await side.beginSnapshot();
    expect(await subject.store.closings.removeMonth(startOf(1))).toBe("locked");
    await side.close();
    expect(await removeMonths(subject.store, startOf(1))).toEqual(["removed", "none"]);
    await subject.expectSound(own.organizationId);
  });

  test("several processes may replace it at once, while the books are verified and a process dies", async () => {
    const { open, own } = await closed();
    const another = await subject.openAnother();
    let isDone = false;
    const verified = (async () => {
      while (!isDone) await subject.expectSound(own.organizationId);
    })();
    const kill = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'LOCK TABLE ONLY request_%'";
    const attempt = async (store: Store) =>
      store.closings.removeMonth(startOf(1)).catch((error: Error) => error.message);
    const killed = Promise.all(Array.from({ length: 20 }, () => beside.query(kill)));
    await Promise.all([attempt(subject.store), attempt(another), attempt(another), killed]);
    await expect.poll(() => attempt(another), { timeout: 20_000 }).toBe("none");
    isDone = true;
    await verified;
    expect(await idsLeft()).toEqual([open]);
    expect(await partitions()).not.toContain("request_202401_rest");
    await subject.expectSound(own.organizationId);
  });

  test("it stays while an organization with an open hold of the month can book for it", async () => {
    const { own } = await closed();
    const organizationId = randomId("org");
    await subject.store.accounts.insertOrganization({
      id: organizationId,
      name: "Open",
      kind: "standard",
      createdAtMs: 1,
    });
    await subject.one(grantOf(organizationId, 100n));
    const hold = (day: number) => {
      const facts = factsOf(organizationId, { holdId: v7({ msecs: startOf(0) + day * DAY_MS }) });
      return { ...holdOf(organizationId, 9n), facts };
    };
    await subject.one(settleOf(await subject.held(hold(1)), 5));
    const open = await subject.held(hold(2));
    expect(await subject.store.closings.freeze(organizationId, startOf(1))).toBe(false);
    expect(await subject.store.closings.removeMonth(startOf(1))).toBe("none");
    expect(await subject.one(settleOf(open, 5))).toMatchObject({ outcome: "charged", charged: 5n });
    expect(await subject.store.closings.freeze(organizationId, startOf(1))).toBe(true);
    expect(await removeMonths(subject.store, startOf(1))).toEqual(["removed", "none"]);
    // Booked today: closed with the month of its booking.
    expect(await idsLeft()).toHaveLength(3);
    for (const id of [organizationId, own.organizationId]) await subject.expectSound(id);
  });
});
