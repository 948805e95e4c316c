import { expect, test } from "vitest";
import type { Budget, Organization, Token } from "../../api/types.ts";
import {
  troubleOfBudgets,
  troubleOfToken,
  troubleOfTokens,
  troublesOfAll,
  troublesOfOrganization,
} from "./troubles.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");
const DAY_MS = 86_400_000;

function organizationWith(changes: Partial<Organization>, available = 50): Organization {
  const credits = { available, held: 0, used: 0, total: 100 };
  const terms = { kind: "standard", status: "active", pauses_allowances: false, days_left: 90, credit_warnings: null };
  return { name: "Acme", credits, ...terms, ...changes } as Organization;
}
const titlesOf = (organization: Organization) => troublesOfOrganization(organization).map(({ title }) => title);

test("An organization in order has no trouble.", () => {
  expect(troublesOfOrganization(organizationWith({ credit_warnings: [10, 20] }))).toEqual([]);
  expect(troublesOfOrganization(organizationWith({ days_left: null }))).toEqual([]);
  expect(titlesOf(organizationWith({ kind: "playground" }, 0))).toEqual([]);
});

test("A closed organization has no trouble: it has no credits, and needs none.", () => {
  expect(troublesOfOrganization(organizationWith({ status: "closed", pauses_allowances: true }, 0))).toEqual([]);
});

test("A paused organization is named, even if its allowances are paused, together with its lack of credits.", () => {
  const [paused, empty] = troublesOfOrganization(organizationWith({ status: "paused", pauses_allowances: true }, 0.1));
  expect(paused).toMatchObject({ tone: "bad", title: "Acme is paused" });
  expect(paused?.text).toContain("Its allowances are paused as well.");
  expect(empty).toMatchObject({ tone: "bad", title: "Acme is out of credits" });
  expect(empty?.text).toMatch(/^0\.10 credits are left\..*402/);
});

test("Credits that last less than a week, or are below a warning, are said before they are used up.", () => {
  const soon = troublesOfOrganization(organizationWith({ days_left: 3.2, credit_warnings: [60] }));
  expect(soon).toEqual([
    {
      tone: "warn",
      title: "Credits run out soon",
      text: "50.00 credits are left. About 3 days at the current rate.",
      items: [],
    },
  ]);
  expect(titlesOf(organizationWith({ days_left: 7 }))).toEqual([]);
  const [warned] = troublesOfOrganization(organizationWith({ credit_warnings: [20, 80, 50] }));
  expect(warned).toMatchObject({ tone: "warn", text: "50.00 credits are left. You are warned at 50.00." });
});

function budgetWith(name: string, spent: number, held = 0): Budget {
  const remaining = Math.max(0, 10 - spent - held);
  const resets_at = "2026-12-01T00:00:00.000Z";
  return { name, current: { limit: 10, spent, held, remaining, resets_at } } as Budget;
}

test("Budgets are listed from 80 % on, and it is said once one refuses requests.", () => {
  expect(troubleOfBudgets([budgetWith("small", 7.9), { name: "each", current: null } as Budget], "/x")).toEqual([]);
  const [near] = troubleOfBudgets([budgetWith("small", 1), budgetWith("team", 7, 1)], "/x");
  expect(near).toEqual({
    tone: "warn",
    title: "1 budget is used up or nearly so",
    items: [
      {
        tone: "warn",
        text: "team: 80% used. 7.00 spent, 1.00 held of 10.00, until Dec 1, 2026, 00:00:00 UTC",
        path: "/x",
      },
    ],
  });
  const [full] = troubleOfBudgets([budgetWith("team", 8), budgetWith("all", 10)], "/x");
  expect(full).toMatchObject({ tone: "bad", title: "2 budgets are used up or nearly so" });
  expect(full?.text).toContain("402 budget_exhausted");
});

function tokenWith(name: string, days: number | null, cap: Token["cap"] = null): Token {
  const expires_at = days === null ? null : new Date(NOW + days * DAY_MS).toISOString();
  return {
    id: `tok_${name}`,
    name,
    organization_name: "Acme",
    status: "active",
    expires_at,
    successor_id: null,
    cap,
  } as Token;
}

test("Tokens that expire within a week are listed with their page, and with their organization for operators.", () => {
  const tokens = [tokenWith("web", 2), tokenWith("late", 8), tokenWith("ever", null)];
  expect(troubleOfTokens(tokens, NOW, false)).toMatchObject([
    { title: "1 token expires within 7 days", items: [{ text: "web expires in 2 days", path: "/tokens/tok_web" }] },
  ]);
  expect(troubleOfTokens(tokens, NOW, true)[0]?.items[0]?.text).toBe("web of Acme expires in 2 days");
  const rotated = { ...tokenWith("old", 0.1), successor_id: "tok_new" };
  expect(troubleOfTokens([tokenWith("late", 8), rotated], NOW, false)).toEqual([]);
});

test("A token says when it expires and how much of its cap is used; a revoked one says neither.", () => {
  const titles = (token: Token) => troubleOfToken(token, NOW).map(({ title }) => title);
  expect(titles(tokenWith("web", 2, { amount: 10, spent: 7, held: 2 }))).toEqual([
    "This token expires in 2 days",
    "90% of the spending cap is used",
  ]);
  expect(titles(tokenWith("web", 30, { amount: 10, spent: 10, held: 0 }))).toEqual(["The spending cap is used up"]);
  expect(titles(tokenWith("web", 30, { amount: 10, spent: 7.9, held: 0 }))).toEqual([]);
  expect(titles({ ...tokenWith("web", 2), status: "revoked" })).toEqual([]);
});

test("The service says how many organizations cannot pay, names those whose spending ended, and lists paused ones.", () => {
  const ending = [
    { organization_id: "org_1", name: "Empty", available: 0, days_left: 0 },
    { organization_id: "org_2", name: "Soon", available: 1, days_left: 2 },
  ];
  const paused = { id: "org_3", name: "Paused" } as Organization;
  expect(troublesOfAll({ active: 8, out_of_credits: 7, ending, refused: [] }, [paused])).toMatchObject([
    { tone: "bad", title: "7 of 8 organizations cannot pay", items: [{ text: "Empty", path: "/organizations/org_1" }] },
    { tone: "warn", title: "1 organization is paused", items: [{ text: "Paused", path: "/organizations/org_3" }] },
  ]);
  expect(troublesOfAll({ active: 8, out_of_credits: 0, ending: [], refused: [] }, [])).toEqual([]);
  expect(troublesOfAll({ active: 8, out_of_credits: 1, ending: [], refused: [] }, [])[0]?.items).toEqual([
    { text: "See all organizations", path: "/organizations" },
  ]);
});
