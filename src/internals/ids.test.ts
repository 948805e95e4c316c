import { expect, test } from "vitest";
import { requestId, uuidV7 } from "./ids.ts";

test("a UUIDv7 has its time, version and variant where RFC 9562 puts them", () => {
  // The example of RFC 9562, appendix A.6, is of this time.
  expect(uuidV7(0x017f22e279b0)).toMatch(/^017f22e2-79b0-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("ids come in the order of time, and are never the same", () => {
  const ids = Array.from({ length: 10_000 }, (_, index) => uuidV7(1_800_000_000_000 + index));
  expect(ids).toEqual(ids.toSorted());
  expect(new Set(Array.from({ length: 10_000 }, () => uuidV7(1))).size).toBe(10_000);
});

test("a request's id is one word that begins with its time", () => {
  expect(requestId(0x017f22e279b0)).toMatch(/^req_017f22e279b07[0-9a-f]{3}[89ab][0-9a-f]{15}$/);
});
