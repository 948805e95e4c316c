import { expect, test } from "vitest";
import type { StatementEntry } from "../../api/types.ts";
import { entryDescription } from "./statement-values.ts";

test("A charge is described by model and tokens, another entry by reference and note.", () => {
  const charge = { kind: "charge", model: "m", tokens: { input: 900, cached_input: 100, output: 34 } };
  expect(entryDescription(charge as unknown as StatementEntry)).toBe("m, 1,034 tokens");
  const grant = { kind: "grant", tokens: null, reference: null, note: null, id: "grant_1" } as StatementEntry;
  expect(entryDescription(grant)).toBe("grant_1");
  expect(entryDescription({ ...grant, reference: "invoice 7" })).toBe("invoice 7");
  expect(entryDescription({ ...grant, reference: "allowance/allowance_1/2026-11-21" })).toBe("Allowance 2026-11-21");
  expect(entryDescription({ ...grant, kind: "revoke", reference: "r1", note: "by mistake" })).toBe("r1: by mistake");
});
