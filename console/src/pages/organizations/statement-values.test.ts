import { expect, test } from "vitest";
import type { StatementEntry } from "../../api/types.ts";
import { countedLabel, entryDescription } from "./statement-values.ts";

test("A charge is described by model and tokens, another entry by reference and note.", () => {
  const charge = { kind: "charge", model: "m", tokens: { input: 900, cached_input: 100, output: 34 } };
  expect(entryDescription(charge as unknown as StatementEntry)).toBe("m, 1,034 tokens");
  const grant = { kind: "grant", tokens: null, reference: null, note: null, id: "grant_1" } as StatementEntry;
  expect(entryDescription(grant)).toBe("grant_1");
  expect(entryDescription({ ...grant, reference: "invoice 7" })).toBe("invoice 7");
  expect(entryDescription({ ...grant, reference: "allowance/allowance_1/2026-11-21" })).toBe("Allowance 2026-11-21");
  expect(entryDescription({ ...grant, kind: "revoke", reference: "r1", note: "by mistake" })).toBe("r1: by mistake");
});

test("An entry names its token, and the budgets in which it counts, each by its id once it is deleted.", () => {
  const entry = { token_id: null, token_name: null, budgets: [] } as unknown as StatementEntry;
  const budgets = [
    { id: "bud_1", name: "Users", value: "ada", begins_at: null },
    { id: "bud_2", name: null, value: null, begins_at: null },
  ];
  expect(countedLabel({ ...entry, budgets })).toBe("Budgets: Users (ada), bud_2");
  expect(countedLabel({ ...entry, budgets: budgets.slice(1) })).toBe("Budget: bud_2");
  expect(countedLabel(entry)).toBeNull();
  expect(countedLabel({ ...entry, token_id: "tok_1" })).toBe("Token: tok_1");
  const named = { ...entry, token_id: "tok_1", token_name: "web app", budgets: budgets.slice(1) };
  expect(countedLabel(named)).toBe("Token: web app · Budget: bud_2");
});
