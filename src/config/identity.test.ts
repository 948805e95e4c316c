import { describe, expect, test } from "vitest";
import { accessOfClaims } from "./identity.ts";
import type { IssuerSettings } from "./identity-schema.ts";

type Rule = IssuerSettings["roles"][number];

function accessBy(roles: Rule[], claims: Record<string, unknown>, pins: Record<string, string> = {}) {
  const settings = { issuer: "https://login.example.com", audience: "a", scopes: [], algorithms: [] };
  return accessOfClaims({ ...settings, roles, pins }, claims);
}
const isOperator = (when: Rule["when"], claims: Record<string, unknown>) =>
  accessBy([{ when, role: "operator" }], claims)?.role === "operator";

describe("a claim", () => {
  test.each<[string, Rule["when"], Record<string, unknown>, boolean]>([
    ["is the value", { tenant: "acme" }, { tenant: "acme" }, true],
    ["contains the value", { groups: "b" }, { groups: ["a", "b"] }, true],
    ["differs in case", { tenant: "acme" }, { tenant: "Acme" }, false],
    ["only begins with the value", { tenant: "acme" }, { tenant: "acme-2" }, false],
    ["is absent", { tenant: "acme" }, {}, false],
    ["is one of an object", { groups: "a" }, { groups: { a: true } }, false],
    ["is true", { staff: true }, { staff: true }, true],
    ["is the text of true", { staff: true }, { staff: "true" }, false],
    ["matches with every other claim", { a: "1", b: "2" }, { a: "1", b: "2" }, true],
    ["matches without another claim", { a: "1", b: "2" }, { a: "1" }, false],
    ["is inside of another", { "realm_access.roles": "x" }, { realm_access: { roles: ["x"] } }, true],
    ["has dots in its name", { "https://a.example/b": "x" }, { "https://a.example/b": "x" }, true],
    ["is inherited", { "constructor.name": "Object" }, {}, false],
    ["is inherited inside of another", { "a.constructor.name": "Object" }, { a: {} }, false],
    ["is a verified address", { email: "a@b.example" }, { email: "a@b.example", email_verified: true }, true],
    ["is an unverified address", { email: "a@b.example" }, { email: "a@b.example", email_verified: false }, false],
    ["is an address of unknown state", { email: "a@b.example" }, { email: "a@b.example" }, false],
    [
      "is an address verified by a text",
      { email: "a@b.example" },
      { email: "a@b.example", email_verified: "true" },
      false,
    ],
    ["is a verified domain", { email_domain: "b.example" }, { email: "a@B.example", email_verified: true }, true],
    [
      "is the domain of a rule in upper case",
      { email_domain: "B.Example" },
      { email: "a@b.example", email_verified: true },
      true,
    ],
    ["is an unverified domain", { email_domain: "b.example" }, { email: "a@b.example", email_verified: false }, false],
    [
      "is a domain without an address",
      { email_domain: "b.example" },
      { email: "b.example", email_verified: true },
      false,
    ],
    [
      "is a domain inside of a name",
      { email_domain: "b.example" },
      { email: "b.example@evil.example", email_verified: true },
      false,
    ],
    [
      "is the last domain",
      { email_domain: "b.example" },
      { email: "x@evil.example@b.example", email_verified: true },
      true,
    ],
    ["ends with the domain", { email_domain: "b.example" }, { email: "a@evilb.example", email_verified: true }, false],
    [
      "states a domain itself",
      { email_domain: "b.example" },
      { email_domain: "b.example", email_verified: true },
      false,
    ],
  ])("that %s", (_, when, claims, expected) => {
    expect(isOperator(when, claims)).toBe(expected);
  });
});

test("the first role that matches counts, and without a match there is no access", () => {
  const roles: Rule[] = [
    { when: { groups: "admins" }, role: "operator" },
    { when: { groups: "staff" }, role: "owner", organization: "org_a" },
    { when: { tenant: "t" }, role: "member", organization: { claim: "org.id" } },
  ];
  expect(accessBy(roles, { groups: ["staff", "admins"] })).toMatchObject({
    role: "operator",
    organizationId: null,
    pins: {},
  });
  expect(accessBy(roles, { groups: "staff" })).toMatchObject({ role: "owner", organizationId: "org_a", pins: {} });
  expect(accessBy(roles, { tenant: "t", org: { id: "org_b" } })).toMatchObject({
    role: "member",
    organizationId: "org_b",
  });
  expect(accessBy(roles, { groups: "guests" })).toBeUndefined();
});

test.each([{}, { org: null }, { org: "" }, { org: ["org_a"] }, { org: 1 }, { org: "org_playground" }])(
  "a role whose organization is in the claims does not match %j",
  (claims) => {
    const roles: Rule[] = [{ when: { sub: "s" }, role: "owner", organization: { claim: "org" } }];
    expect(accessBy(roles, { sub: "s", ...claims })).toBeUndefined();
  },
);

test("pins have the values of claims, and none where a claim is absent or no short text", () => {
  const claims = { sub: "s", number: 7, list: ["a"], empty: "", long: "x".repeat(513) };
  const pins = { user: "sub", n: "number", l: "list", e: "empty", x: "long", t: "team", c: "constructor" };
  const roles: Rule[] = [{ when: { sub: "s" }, role: "operator" }];
  expect(accessBy(roles, claims, pins)?.pins).toEqual({
    user: "s",
    n: "7",
    l: null,
    e: null,
    x: null,
    t: null,
    c: null,
  });
});

test("an access depends on the roles down to the one that matched and on the pins, and on nothing behind them", () => {
  const [first, second]: Rule[] = [
    { when: { a: "1" }, role: "owner", organization: "org_a" },
    { when: { b: "1" }, role: "auditor" },
  ];
  const given = (roles: (Rule | undefined)[], pins = {}) =>
    accessBy(
      roles.filter((rule) => rule !== undefined),
      { a: "1" },
      pins,
    )?.basis;
  const basis = given([first]);
  expect(given([first, second])).toBe(basis);
  for (const other of [
    given([second, first]),
    given([first], { user: "sub" }),
    given([{ when: { a: "1" }, role: "auditor" }]),
  ])
    expect(other).not.toBe(basis);
});
