import { expect, test } from "vitest";
import type { Token } from "../../api/types.ts";
import { draftOf, emptyDraft, readChange, readDraft } from "./draft.ts";

const NOW_MS = Date.parse("2026-11-21T12:00:00Z");
const draft = { ...emptyDraft("org_a"), name: " web app " };

test("A form with only a name creates a token with the default scopes, all models, no cap and no expiry.", () => {
  expect(readDraft(draft, NOW_MS)).toEqual({
    token: {
      organization_id: "org_a",
      name: "web app",
      scopes: ["chat.completions:write", "models:read", "usage:read"],
      models: null,
      limits: null,
      expires_at: null,
    },
  });
});

test("Restrictions in the form are sent.", () => {
  const narrowed = {
    ...draft,
    scopes: new Set(["models:read"] as const),
    models: new Set(["sandbox/echo"]),
    cap: "2.5",
    expiry: "7" as const,
    limits: { ...draft.limits, concurrent_requests: "3" },
  };
  expect(readDraft(narrowed, NOW_MS)).toMatchObject({
    token: {
      scopes: ["models:read"],
      models: ["sandbox/echo"],
      cap: 2.5,
      expires_at: "2026-11-28T12:00:00.000Z",
      limits: { concurrent_requests: 3 },
    },
  });
});

test("All invalid fields are reported at once.", () => {
  const wrong = {
    ...emptyDraft(""),
    scopes: new Set<never>(),
    models: new Set<string>(),
    cap: "x",
    expiry: "date" as const,
    limits: { ...draft.limits, tokens_per_minute: "-1" },
  };
  const read = readDraft(wrong, NOW_MS);
  expect(Object.keys("errors" in read ? read.errors : {}).sort()).toEqual(
    ["cap", "day", "models", "name", "organizationId", "scopes", "tokens_per_minute"].sort(),
  );
});

const token = {
  organization_id: "org_a",
  name: "web",
  scopes: ["models:read", "usage:read"],
  models: ["sandbox/echo", "sandbox/story"],
  limits: { tokens_per_minute: 9 },
  cap: { amount: 2.5, spent: 1, held: 0 },
  expires_at: "2026-11-21T12:00:01.500Z",
} as Token;

test("A form that is saved as it opened changes nothing, even if the options were chosen in another order.", () => {
  const before = draftOf(token);
  const again = {
    ...before,
    scopes: new Set([...before.scopes].reverse()),
    models: new Set([...(before.models ?? [])].reverse()),
  };
  expect(readChange(again, before, NOW_MS)).toEqual({ change: {} });
});

test("Only changed terms are sent, and null where a term is removed.", () => {
  const before = draftOf(token);
  const removed = { ...before, models: null, limits: draft.limits, cap: "", expiry: "never" as const };
  const change = { models: null, limits: null, cap: null, expires_at: null };
  expect(readChange(removed, before, NOW_MS)).toEqual({ change });
  expect(readChange({ ...before, name: "shop", cap: "3" }, before, NOW_MS)).toEqual({
    change: { name: "shop", cap: 3 },
  });
  const later = { ...before, expiry: "7" as const };
  expect(readChange(later, before, NOW_MS)).toEqual({ change: { expires_at: "2026-11-28T12:00:00.000Z" } });
});

test("Invalid terms of a changed token are reported at their fields.", () => {
  const before = draftOf(token);
  const wrong = { ...before, name: " ", scopes: new Set<never>(), cap: "0", day: "2020-01-01" };
  const read = readChange(wrong, before, NOW_MS);
  expect(Object.keys("errors" in read ? read.errors : {}).sort()).toEqual(["cap", "day", "name", "scopes"]);
});
