import pg from "pg";
import { v7 } from "uuid";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { close, type Owner, owner, startOf } from "../../../test/stores/closings.ts";
import { factsOf, holdOf, randomId, Subject, settleOf } from "../../../test/stores/fixture.ts";
import { pastPartitions } from "../../../test/support/bulk.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import type { Store } from "../store.ts";
import { openPostgresSide } from "./copy-side.ts";
import { dropEmptyPartitions, LOCK_REQUESTS } from "./partitions.ts";
import { closePools, openPools, type Pools } from "./pools.ts";
import { openPostgresStore } from "./postgres.ts";

const DAY_MS = 86_400_000;
const EVERYTHING = Number.POSITIVE_INFINITY;

/** The partitions that every test begins with. */
const PARTITIONS = ["request_202401", "request_202402", "request_202403", "request_202404", "request_202405"];

describe.skipIf(!hasPostgres)("the partition of a past month", () => {
  let database: TestDatabase;
  let beside: pg.Client;
  const stores: Store[] = [];
  let pools: Pools;
  let subject: Subject;
  beforeEach(async () => {
    database = await createTestDatabase();
    const open = async () => {
      stores.push(await openPostgresStore({ url: database.url, role: "service" }));
      return stores.at(-1) as Store;
    };
    const store = await open();
    pools = openPools(database.url);
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
    await closePools(pools);
    for (const store of stores.splice(0)) await store.close();
    await database.drop();
  });

  const drop = () => dropEmptyPartitions(pools.durable);
  const partitions = async () =>
    (await subject.read("select relname from pg_class where relname ~ '^request_2024[0-9]*$' order by 1")).map(
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

  test("it is dropped once retention has emptied it, and later bookings for it are kept", async () => {
    const [one, other] = [await owner(subject), await owner(subject)];
    for (let day = 0; day < 8; day += 1) await charge(one, 0, day);
    const across = await charge(other, 0, 30.5, 0.75);
    const later = await charge(one, 1, 3);
    await drop();
    expect(await partitions()).toEqual(["request_202401", "request_202402"]);
    for (const each of [one, other]) expect(await close(subject, each, startOf(1), EVERYTHING)).toBe(true);
    await drop();
    expect(await idsLeft()).toEqual([across, later]);
    expect(await partitions()).toEqual(["request_202401", "request_202402"]);
    for (const each of [one, other]) expect(await close(subject, each, startOf(2), EVERYTHING)).toBe(true);
    await drop();
    expect([await idsLeft(), await partitions()]).toEqual([[], []]);
    const late = await charge(await owner(subject), 0, 2);
    expect(await idsLeft()).toEqual([late]);
    for (const { organizationId } of [one, other]) await subject.expectSound(organizationId);
  });

  test("those of the last month and later stay", async () => {
    const names = "select relname from pg_class where relname ~ '^request_[0-9]{6}$' order by 1";
    const before = await subject.read(names);
    const nowMs = new Date();
    const lastMonthMs = Date.UTC(nowMs.getUTCFullYear(), nowMs.getUTCMonth() - 1);
    for (const statement of pastPartitions(lastMonthMs)) await beside.query(statement);
    await drop();
    const added = before.filter(({ relname }) => !PARTITIONS.includes(String(relname)));
    expect(await subject.read(names)).toHaveLength(added.length + 1);
  });

  test.each([
    ["a report", `begin isolation level repeatable read; ${LOCK_REQUESTS}`],
    ["a booking", "begin; insert into request select * from request where false"],
  ])("it stays while %s uses the requests, and others can book meanwhile", async (_, use) => {
    const own = await owner(subject);
    const side = new pg.Client({ connectionString: database.url });
    await side.connect();
    await side.query(use);
    await drop();
    expect(await partitions()).toEqual(PARTITIONS);
    const hold = await subject.held(holdOf(own.organizationId, 9n));
    expect(await subject.one(settleOf(hold, 5))).toMatchObject({ outcome: "charged" });
    await side.query("rollback");
    await side.end();
    await drop();
    expect(await partitions()).toEqual([]);
    await subject.expectSound(own.organizationId);
  });

  test("a user who may not drop tables leaves it, and deletes its closed requests", async () => {
    const own = await owner(subject);
    await charge(own, 0, 3);
    const open = await charge(own, 0, 30.5, 0.75);
    const role = `limited_${randomId("role").slice(-8).toLowerCase()}`;
    const url = new URL(database.url);
    [url.username, url.password] = [role, "secret"];
    await beside.query(`create role ${role} login password 'secret'`);
    await beside.query(`grant select, insert, update, delete on all tables in schema public to ${role}`);
    await beside.query(`revoke create on schema public from public`);
    try {
      const limited = await openPostgresStore({ url: url.href, role: "service" });
      stores.push(limited);
      expect(await partitions()).toEqual(PARTITIONS);
      expect(await close({ ...subject, store: limited } as Subject, own, startOf(1), EVERYTHING)).toBe(true);
      expect(await idsLeft()).toEqual([open]);
      await limited.close();
    } finally {
      await beside.query(`drop owned by ${role}`);
      await beside.query(`drop role ${role}`);
    }
  });

  test("a copy that has begun keeps it", async () => {
    const side = await openPostgresSide(database.url);
    await side.beginSnapshot();
    await drop();
    expect(await partitions()).toEqual(PARTITIONS);
    await side[Symbol.asyncDispose]();
    await drop();
    expect(await partitions()).toEqual([]);
  });

  test("requests that are booked while several processes drop it are all kept", async () => {
    const own = await owner(subject);
    const booked: string[] = [];
    const books = async () => {
      for (let day = 0; day < 20; day += 1) booked.push(await charge(own, day % 5, day));
    };
    const drops = async () => {
      for (let round = 0; round < 10; round += 1) await Promise.all([drop(), drop()]);
    };
    await Promise.all([books(), drops()]);
    expect(await idsLeft()).toEqual(booked.sort());
    await subject.expectSound(own.organizationId);
  });
});
