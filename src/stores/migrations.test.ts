import { expect, test } from "vitest";
import { type Migration, schemaRefusal } from "./migrations.ts";

const upTo = (version: number): Migration[] =>
  Array.from({ length: version }, (_, index) => ({ version: index + 1, name: "", sql: "", checksum: "" }));

test.each([
  [undefined, 2, /^There is no store in \/data\. /],
  [1, 2, /^\/data was written by an older Tollgate: its schema is 1, this one needs 2\./],
  [3, 2, /^\/data was written by a newer Tollgate: its schema is 3, this one knows up to 2\./],
])("a store with schema %s is refused if schema %s is the newest known", (found, known, expected) => {
  expect(schemaRefusal("/data", found, upTo(known))).toMatch(expected);
});

test("a store with the newest known schema is accepted", () => {
  expect(schemaRefusal("/data", 2, upTo(2))).toBeUndefined();
});
