import { expect, test } from "vitest";
import { emptyDraft, readDraft } from "./draft.ts";

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
