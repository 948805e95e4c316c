import { expect, test } from "vitest";
import { differences } from "./differences.ts";

test("a change tells the fields that differ", () => {
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

test("a list is told one by one", () => {
  expect(differences(null, { scopes: ["models:read", "usage:read"], is_kept: false })).toEqual([
    { name: "scopes", from: null, to: "models:read, usage:read" },
    { name: "is kept", from: null, to: "false" },
  ]);
});

test("what was made is told whole, what was ended by what it was", () => {
  expect(differences(null, { name: "a", expiresAt: "x", next_at: "y", limits: null })).toEqual([
    { name: "name", from: null, to: "a" },
    { name: "expires at", from: null, to: "x" },
    { name: "next at", from: null, to: "y" },
  ]);
  expect(differences({ name: "a" }, null)).toEqual([{ name: "name", from: "a", to: "" }]);
  expect(differences(null, null)).toEqual([]);
});
