import { expect, test } from "vitest";
import { actionInWords, actorInWords, afterInWords } from "./words.ts";

test("actions and actors are shown in words, and an action that is not known as it is named", () => {
  expect(actionInWords("session.sign_in_failed")).toBe("Sign-in failed");
  expect(actionInWords("something.new")).toBe("something.new");
  expect(actorInWords({ kind: "anonymous", id: null, address: "192.0.2.1" })).toBe("Not signed in");
});

test("the reason of a failed sign-in is shown in words, other values are left alone", () => {
  const failed = { action: "session.sign_in_failed", after: { reason: "insufficient_scope", token: "sk-tg-abcdef" } };
  expect(afterInWords(failed)).toEqual({ reason: "missing scope console:read", token: "sk-tg-abcdef" });
  const counted = { action: "session.sign_in_failed", after: { furtherAttempts: 3 } };
  expect(afterInWords(counted)).toEqual(counted.after);
  const grant = { action: "credits.grant", after: { reason: "insufficient_scope" } };
  expect(afterInWords(grant)).toEqual(grant.after);
});
