import { expect, test } from "vitest";
import { readText } from "./answer.ts";
import type { HttpBody } from "./exchange.ts";

test("The pieces of a body that arrive together are kept as one.", async () => {
  const reads = ["grüßen", "you"].map((text) => [...Buffer.from(text)].map((byte) => Buffer.from([byte])));
  const body = { read: async () => reads.shift(), destroy: () => {} } as unknown as HttpBody;
  const pieces: Buffer[] = [];
  expect(await readText(body, { pieces })).toBe("grüßenyou");
  expect(pieces.map(String)).toEqual(["grüßen", "you"]);
});
