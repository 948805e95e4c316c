import { describe, expect, test } from "vitest";
import { lineOf, load } from "../../test/support/config.ts";

const ROLES = "roles: [{ when: { groups: platform-team }, role: operator }]";
const one = (...lines: string[]) => `identity:\n  issuers:\n    - ${lines.join("\n      ")}\n`;
const issuer = (...lines: string[]) => one("issuer: https://login.example.com", ...lines);

test("an issuer has the default scopes and algorithms", () => {
  const { identity } = load(issuer("audience: https://tollgate.example.com", ROLES));
  expect(identity.issuers).toEqual([
    {
      issuer: "https://login.example.com",
      audience: "https://tollgate.example.com",
      scopes: ["openid", "email", "profile"],
      algorithms: ["RS256", "ES256", "EdDSA", "PS256"],
      roles: [{ when: { groups: "platform-team" }, role: "operator" }],
      pins: {},
    },
  ]);
  expect(load("").identity).toEqual({ issuers: [] });
});

test("an organization is an id, or the name of a claim", () => {
  const role = (organization: string) =>
    load(
      issuer("audience: a", `roles: [{ when: { email_verified: true }, role: owner, organization: ${organization} }]`),
    );
  expect(role("org_abc").identity.issuers[0]?.roles[0]).toMatchObject({ organization: "org_abc" });
  expect(role("{ claim: tenant_org }").identity.issuers[0]?.roles[0]).toEqual({
    when: { email_verified: true },
    role: "owner",
    organization: { claim: "tenant_org" },
  });
});

describe("a mistake names the setting and what is allowed", () => {
  const address = "an https:// address without a query (http:// on this machine only)";
  const inOrganization =
    "the id of an organization, or a claim that contains it or the external id, as { claim: NAME }";
  test.each([
    ["another machine without TLS", one("issuer: http://login.example.com", "audience: a", ROLES), address],
    ["a name that begins with 127", one("issuer: http://127.0.0.1.example.com", "audience: a", ROLES), address],
    ["a query", one("issuer: https://login.example.com?a=b", "audience: a", ROLES), address],
    ["a user name", one("issuer: https://me@login.example.com", "audience: a", ROLES), address],
    [
      "a secret algorithm",
      issuer("audience: a", "algorithms: [HS256]", ROLES),
      'is "HS256", but must be one of: RS256',
    ],
    ["no signature", issuer("audience: a", "algorithms: [none]", ROLES), 'is "none", but must be one of: RS256'],
    ["no algorithm", issuer("audience: a", "algorithms: []", ROLES), "a list with at least one entry"],
    ["no roles", issuer("audience: a"), "roles is missing, but must be a list with at least one entry"],
    ["scopes without openid", issuer("audience: a", "scopes: [email]", ROLES), "one of them openid"],
    [
      "a claim without a value",
      issuer("audience: a", "roles: [{ when: { groups: }, role: operator }]"),
      "at least one claim",
    ],
    ["an unknown role", issuer("audience: a", "roles: [{ when: { a: b }, role: admin }]"), "operator, auditor, owner"],
    [
      "a role without its organization",
      issuer("audience: a", "roles: [{ when: { a: b }, role: owner }]"),
      "organization is missing",
    ],
    [
      "an organization for an operator",
      issuer("audience: a", "roles: [{ when: { a: b }, role: operator, organization: org_a }]"),
      "The role operator is not one of an organization",
    ],
    [
      "a name instead of an id",
      issuer("audience: a", "roles: [{ when: { a: b }, role: owner, organization: Acme }]"),
      inOrganization,
    ],
    ["a client without a secret", issuer("clientId: tollgate", ROLES), "clientSecret is missing"],
    ["a secret without a client", issuer("clientSecret: s3cret", ROLES), "clientId is missing"],
    ["neither use", issuer(ROLES), "identity.issuers[0] has no use"],
    ["an unknown key", issuer("audience: a", "jwksUri: https://a", ROLES), "jwksUri is not a known setting"],
    ["a pin of a reserved key", issuer("audience: a", ROLES, "pins: { requested_model: sub }"), "at most 16 keys"],
  ])("%s", (_, text, message) => {
    const line = lineOf(() => load(text));
    expect(line).toMatch(/^tollgate\.yaml:\d+: identity\.issuers\[0\]/);
    expect(line).toContain(message);
  });

  test("the same issuer twice", () => {
    const twice = `${issuer("audience: a", ROLES)}    - { issuer: https://login.example.com, audience: b, ${ROLES} }`;
    expect(lineOf(() => load(twice))).toContain(
      'identity.issuers[1].issuer is "https://login.example.com" a second time',
    );
  });

  test("a client secret of another type is not shown", () => {
    const line = lineOf(() => load(issuer("clientId: tollgate", "clientSecret: 12345678", ROLES)));
    expect(line).toContain("clientSecret");
    expect(line).not.toContain("12345678");
  });
});
