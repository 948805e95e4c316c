import pg from "pg";
import { expect, test } from "vitest";
import { createTestDatabase, hasPostgres } from "../../../test/support/postgres.ts";
import { arrayText } from "./book-rows.ts";

const TEXTS = ["", "plain", 'a "quoted" one', "\\", '\\"', "NULL", "null", "{a,b}", "é \u{1f600}\n\t", " ", ","];

test.skipIf(!hasPostgres)("PostgreSQL reads arrays as they were written", async () => {
  const database = await createTestDatabase();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    const texts = [...TEXTS, null, "after null"];
    const integers = [0n, null, -1, 2n ** 63n - 1n];
    const query = "SELECT $1::text[] AS texts, $2::bigint[] AS integers, $3::text[] AS nothing, $4::text[] AS empty";
    const { rows } = await client.query(query, [texts, integers, [], [""]].map(arrayText));
    const expected = integers.map((integer) => (integer === null ? null : String(integer)));
    expect(rows).toEqual([{ texts, integers: expected, nothing: [], empty: [""] }]);
  } finally {
    await client.end();
    await database.drop();
  }
});
