import { expect, test } from "vitest";
import type { StatementEntry } from "../../api/types.ts";
import { budgetsLabel, entryDescription } from "./statement-values.ts";

test("A charge is described by model and tokens, another entry by reference and note.", () => {
  const charge = { kind: "charge", model: "m", tokens: { input: 900, cached_input: 100, output: 34 } };
  expect(entryDescription(charge as unknown as StatementEntry)).toBe("m, 1,034 tokens");
  const grant = { kind: "grant", tokens: null, reference: null, note: null, id: "grant_1" } as StatementEntry;
  expect(entryDescription(grant)).toBe("grant_1");
  expect(entryDescription({ ...grant, reference: "invoice 7" })).toBe("invoice 7");
  expect(entryDescription({ ...grant, reference: "allowance/allowance_1/2026-11-21" })).toBe("Allowance 2026-11-21");
  expect(entryDescription({ ...grant, kind: "revoke", reference: "r1", note: "by mistake" })).toBe("r1: by mistake");
});

test("An entry names the budgets in which it counts, a deleted one by its id, with their values.", () => {
  const budgets = [
    { id: "bud_1", name: "Users", value: "ada" },
    { id: "bud_2", name: null, value: null },
  ];
  expect(budgetsLabel({ budgets } as StatementEntry)).toBe("Budgets: Users (ada), bud_2");
  expect(budgetsLabel({ budgets: budgets.slice(1) } as StatementEntry)).toBe("Budget: bud_2");
  expect(budgetsLabel({ budgets: [] as StatementEntry["budgets"] } as StatementEntry)).toBeNull();
});
