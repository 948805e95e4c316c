import { expect, test } from "vitest";
import type { AuditEntry } from "../../api/types.ts";
import { actionLabel, pathOfSubject } from "./actions.ts";
import { actorLabel, differences, valuesAfter } from "./entries.ts";

test("Actions and actors have labels, and an unknown action is shown by its name.", () => {
  expect(actionLabel("session.sign_in_failed")).toBe("Sign-in failed");
  expect(actionLabel("something.new")).toBe("something.new");
  expect(actorLabel({ kind: "anonymous", id: null, name: null, address: "192.0.2.1" })).toBe("Not signed in");
  expect(actorLabel({ kind: "auditor", id: "adm_1", name: "Ada", address: null })).toBe("Auditor: Ada");
});

test("The reason of a failed sign-in has a label, and other values are unchanged.", () => {
  const failed = { action: "session.sign_in_failed", after: { reason: "insufficient_scope", token: "sk-tg-abcdef" } };
  expect(valuesAfter(failed)).toEqual({ reason: "missing scope console:read", token: "sk-tg-abcdef" });
  const counted = { action: "session.sign_in_failed", after: { furtherAttempts: 3 } };
  expect(valuesAfter(counted)).toEqual(counted.after);
  const grant = { action: "credits.grant", after: { reason: "insufficient_scope" } };
  expect(valuesAfter(grant)).toEqual(grant.after);
});

test("A change lists the fields that differ.", () => {
  expect(
    differences(
      { name: "a", status: "active", limits: null },
      { name: "a", status: "paused", limits: { requests_per_minute: 1, at_once: 2 } },
    ),
  ).toEqual([
    { name: "status", from: "active", to: "paused" },
    { name: "limits", from: "none", to: "requests per minute 1, at once 2" },
  ]);
});

test("The values of a list are joined with commas.", () => {
  expect(differences(null, { scopes: ["models:read", "usage:read"], is_kept: false })).toEqual([
    { name: "scopes", from: null, to: "List models, View usage" },
    { name: "is kept", from: null, to: "no" },
  ]);
});

test("A creation lists all fields that were set, and a deletion lists their last values.", () => {
  expect(differences(null, { name: "a", expiresAt: "x", next_at: "y", limits: null })).toEqual([
    { name: "name", from: null, to: "a" },
    { name: "expires", from: null, to: "x" },
    { name: "next grant", from: null, to: "y" },
  ]);
  expect(differences({ name: "a" }, null)).toEqual([{ name: "name", from: "a", to: "" }]);
  expect(differences(null, null)).toEqual([]);
});

test("Amounts, counts, times and switches are formatted as on other pages, and a usual priority is left out.", () => {
  const grant = { amount: 15_000, priority: 0, expires_at: "2026-12-01T08:30:00.000Z", reference: "invoice 7" };
  expect(differences(null, grant)).toEqual([
    { name: "amount", from: null, to: "15,000.00 credits" },
    { name: "expires", from: null, to: "Dec 1, 2026, 08:30:00 UTC" },
    { name: "reference", from: null, to: "invoice 7" },
  ]);
  expect(
    differences(
      { cap: "15000.00", keepsConversations: false, priority: 0, limits: null },
      { cap: "2.5", keepsConversations: true, priority: 3, limits: { requests_per_minute: 15_000 } },
    ),
  ).toEqual([
    { name: "spending cap", from: "15,000.00 credits", to: "2.50 credits" },
    { name: "stores prompts and answers", from: "no", to: "yes" },
    { name: "priority", from: "0", to: "3" },
    { name: "limits", from: "none", to: "requests per minute 15,000" },
  ]);
});

test("What a budget covers is a sentence, and a deletion leaves out what was not set.", () => {
  const selector = { tokens: ["tok_1"], models: null, metadata: { team: ["red", "blue"] } };
  const terms = { name: "team", selector, each: null, window: "day", amount: 2 };
  expect(differences(null, { ...terms, each: "metadata.user" })).toEqual([
    { name: "name", from: null, to: "team" },
    { name: "covers", from: null, to: "Requests of tok_1, with team red or blue" },
    { name: "separately for", from: null, to: "each value of user" },
    { name: "window", from: null, to: "day" },
    { name: "amount", from: null, to: "2.00 credits" },
  ]);
  const unlimited = { tokens: null, models: null, metadata: null };
  expect(differences({ ...terms, selector: unlimited }, null)).toEqual([
    { name: "name", from: "team", to: "" },
    { name: "covers", from: "All requests", to: "" },
    { name: "window", from: "day", to: "" },
    { name: "amount", from: "2.00 credits", to: "" },
  ]);
  expect(actionLabel("budget.raise")).toBe("Budget raised");
});

test("An entry leads to the page of its subject, or to the part of the organization's page that shows it.", () => {
  const pathOf = (action: string, subject_id: string | null, organization_id: string | null = "org_1") =>
    pathOfSubject({ action, subject_id, organization_id } as AuditEntry);
  expect(pathOf("token.rotate", "tok_1")).toBe("/tokens/tok_1");
  expect(pathOf("organization.change", "org_1")).toBe("/organizations/org_1");
  expect(pathOf("conversation.read", "0197")).toBe("/requests/0197");
  expect(pathOf("budget.raise", "bdg_1")).toBe("/organizations/org_1?tab=budgets");
  expect(pathOf("credits.grant", "grant_1")).toBe("/organizations/org_1");
  expect(pathOf("operator.revoke", "adm_1", null)).toBeNull();
  expect(pathOf("token.create", null)).toBeNull();
});
