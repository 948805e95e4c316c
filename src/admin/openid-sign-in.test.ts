import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { base64url, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { IssuerSettings } from "../config/identity-schema.ts";
import { OpenIdSignIn } from "./openid-sign-in.ts";

const REDIRECT_URI = "https://tollgate.example/sign-in";
const ACCESS_TOKEN = "access-token";
/** Computed with `printf access-token | openssl dgst -sha256 -binary | head -c 16 | base64`. */
const AT_HASH = "Pxa-1wifRlPl7yG_0oJNfw";

let server: Server;
let issuer: string;
let nowMs: number;
let keys: Awaited<ReturnType<typeof generateKeyPair>>;
/** Published as well, for RS512. */
let longKeys: typeof keys;
let otherKeys: typeof keys;
/** The provider's answer to the next code, and its metadata where they differ. */
let idToken: string;
let metadata: object;
let userInfo: object;
let organizations: string[];
let signIn: OpenIdSignIn;

beforeAll(async () => {
  keys = await generateKeyPair("RS256", { extractable: true });
  longKeys = await generateKeyPair("RS512", { extractable: true });
  otherKeys = await generateKeyPair("RS256");
  const published = await Promise.all([keys, longKeys].map(({ publicKey }) => exportJWK(publicKey)));
  const jwks = published.map((jwk, index) => ({ ...jwk, alg: ["RS256", "RS512"][index] }));
  const answers: Record<string, () => object> = {
    "/.well-known/openid-configuration": () => ({
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      userinfo_endpoint: `${issuer}/me`,
      jwks_uri: `${issuer}/jwks`,
      id_token_signing_alg_values_supported: ["RS256", "RS512", "none"],
      ...metadata,
    }),
    "/token": () => ({ access_token: ACCESS_TOKEN, token_type: "Bearer", id_token: idToken }),
    "/me": () => userInfo,
    "/jwks": () => ({ keys: jwks }),
  };
  server = createServer((request, response) => {
    const answer = answers[request.url ?? ""];
    response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(answer?.() ?? {}));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server?.close());

const warned: object[] = [];
function createSignIn(further: object = {}) {
  nowMs = Date.now();
  metadata = {};
  userInfo = { sub: "ada" };
  organizations = ["org_a"];
  const roles: IssuerSettings["roles"] = [
    { when: { groups: "admins" }, role: "operator" },
    { when: { tenant: true }, role: "member", organization: { claim: "org" } },
  ];
  const client = { clientId: "tollgate", clientSecret: "s", scopes: ["openid"], algorithms: ["RS256" as const] };
  const settings = { issuer, ...client, roles, pins: {}, ...further };
  signIn = new OpenIdSignIn({
    issuers: () => [settings],
    accounts: {
      organizationNamed: async (name) =>
        organizations.includes(name) ? ({ id: name.replace("crm:", "org_") } as never) : undefined,
    },
    identities: { insertIdentity: async () => {}, identity: async () => undefined },
    clock: () => nowMs,
    random: randomBytes,
    log: { debug() {}, info() {}, warn: (fields) => warned.push(fields), error() {} },
  });
}

interface Forged {
  claims?: JWTPayload;
  alg?: string;
  key?: CryptoKey;
}

/** Signs in with an ID token that has these claims besides the right ones, and returns the outcome. */
async function outcomeOf({ claims = {}, alg = "RS256", key = keys.privateKey }: Forged = {}) {
  const { url, secret } = await signIn.begin(issuer, REDIRECT_URI);
  const { state, nonce } = Object.fromEntries(new URL(url).searchParams) as Record<string, string>;
  const seconds = Math.floor(nowMs / 1000);
  const right = {
    iss: issuer,
    aud: "tollgate",
    sub: "ada",
    iat: seconds,
    exp: seconds + 300,
    nonce,
    groups: ["admins"],
  };
  idToken = await new SignJWT({ ...right, ...claims }).setProtectedHeader({ alg }).sign(key);
  return signIn.complete(secret, REDIRECT_URI, new URLSearchParams({ code: "c", state: state ?? "" }).toString());
}

/** Only a verified address is a name without the host of the issuer. */
const nameOf = (claim: string) => `${claim} (${new URL(issuer).host})`;
const person = () => ({
  person: {
    issuer,
    subject: "ada",
    name: nameOf("ada"),
    role: "operator",
    organizationId: null,
    pins: {},
    basis: expect.any(String),
    signOutUrl: null,
  },
});
const REJECTED = { failure: { reason: "rejected_response" } };

describe("an ID token", () => {
  test("a right one signs in, with the hash of the access token and without", async () => {
    createSignIn();
    expect(await outcomeOf()).toEqual(person());
    expect(await outcomeOf({ claims: { at_hash: AT_HASH } })).toEqual(person());
  });

  const soon = () => Math.floor(nowMs / 1000);
  const wrong: [string, () => Forged][] = [
    ["of another issuer", () => ({ claims: { iss: "https://login.example" } })],
    ["for another client", () => ({ claims: { aud: "another" } })],
    ["for several clients without azp", () => ({ claims: { aud: ["tollgate", "another"] } })],
    ["that another client requested", () => ({ claims: { aud: ["tollgate", "another"], azp: "another" } })],
    ["that has expired by more than a minute", () => ({ claims: { exp: soon() - 61 } })],
    ["without exp", () => ({ claims: { exp: undefined } })],
    ["that is not valid yet", () => ({ claims: { nbf: soon() + 120 } })],
    ["with another nonce", () => ({ claims: { nonce: "n" } })],
    ["without a nonce", () => ({ claims: { nonce: undefined } })],
    ["of another access token", () => ({ claims: { at_hash: AT_HASH.replace("P", "Q") } })],
    ["with an algorithm that is not configured", () => ({ alg: "RS512", key: longKeys.privateKey })],
    ["of another key", () => ({ key: otherKeys.privateKey })],
    ["without a subject", () => ({ claims: { sub: undefined } })],
    ["with a subject of 256 characters", () => ({ claims: { sub: "x".repeat(256) } })],
    ["with a control character in its subject", () => ({ claims: { sub: "a\u0000" } })],
  ];
  test.each(wrong)("one %s is refused", async (_, forged) => {
    createSignIn();
    userInfo = { sub: forged().claims?.sub ?? "ada" };
    expect(await outcomeOf(forged())).toMatchObject(REJECTED);
  });

  test.each([
    ["iss", { iss: "https://login.example" }, { expected: "ISSUER", actual: '"https://login.example"' }],
    ["aud", { aud: ["another"], name: "Ada" }, { expected: '"tollgate"', actual: '["another"]' }],
    ["exp", { exp: 1_000 }, { now: expect.stringMatching(/^\d{10}$/), actual: "1000" }],
    ["nonce", { nonce: "n" }, {}],
  ])("the log has the claim %s that was refused, with its value and no other claim", async (claim, claims, facts) => {
    createSignIn();
    expect(await outcomeOf({ claims })).toMatchObject(REJECTED);
    const values = "expected" in facts && facts.expected === "ISSUER" ? { ...facts, expected: `"${issuer}"` } : facts;
    expect(warned.at(-1)).toEqual({ issuer, err: expect.any(Error), claim, ...values });
  });

  test("one with `alg: none` is refused, even if the metadata list it", async () => {
    createSignIn();
    const { url, secret } = await signIn.begin(issuer, REDIRECT_URI);
    const { state, nonce } = Object.fromEntries(new URL(url).searchParams) as Record<string, string>;
    const claims = {
      iss: issuer,
      aud: "tollgate",
      sub: "ada",
      iat: soon(),
      exp: soon() + 300,
      nonce,
      groups: "admins",
    };
    idToken = `${base64url.encode('{"alg":"none"}')}.${base64url.encode(JSON.stringify(claims))}.`;
    expect(await signIn.complete(secret, REDIRECT_URI, `code=c&state=${state}`)).toMatchObject(REJECTED);
  });

  test("one that expired less than a minute ago is accepted", async () => {
    createSignIn();
    expect(await outcomeOf({ claims: { exp: soon() - 30 } })).toEqual(person());
  });
});

describe("a person", () => {
  test("claims of the userinfo endpoint give a role, and cannot be those of somebody else", async () => {
    createSignIn();
    userInfo = { sub: "ada", groups: ["admins"], email: "ada@example.com", email_verified: true };
    const groups = undefined;
    expect(await outcomeOf({ claims: { groups } })).toMatchObject({
      person: { role: "operator", name: "ada@example.com" },
    });
    userInfo = { sub: "eve", groups: ["admins"] };
    expect(await outcomeOf({ claims: { groups } })).toMatchObject(REJECTED);
    // The ID token comes first.
    userInfo = { sub: "ada", groups: ["admins"] };
    expect(await outcomeOf({ claims: { groups: ["others"] } })).toMatchObject({ failure: { reason: "no_role" } });
  });

  test("a role of an organization needs one that exists", async () => {
    createSignIn();
    const claims = { groups: [], tenant: true, org: "org_a" };
    expect(await outcomeOf({ claims })).toMatchObject({ person: { role: "member", organizationId: "org_a" } });
    organizations = ["crm:b"];
    expect(await outcomeOf({ claims })).toMatchObject({ failure: { reason: "no_role" } });
    const external = { ...claims, org: "crm:b" };
    expect(await outcomeOf({ claims: external })).toMatchObject({ person: { organizationId: "org_b" } });
  });

  test("a name is shortened, and cannot break a line", async () => {
    createSignIn();
    const preferred_username = `Ada\n${"x".repeat(500)}`;
    const outcome = await outcomeOf({ claims: { preferred_username } });
    expect(outcome).toMatchObject({ person: { name: nameOf(`Ada\uFFFD${"x".repeat(146)}`) } });
  });

  test("an invisible name is ignored, and a name cannot reverse the text around it", async () => {
    createSignIn();
    const claims = { preferred_username: "\u200b\u200b", name: "\u202emoc.live" };
    expect(await outcomeOf({ claims })).toMatchObject({ person: { name: nameOf("\uFFFDmoc.live") } });
  });
});

describe("a sign-in that has begun", () => {
  test("it ends after ten minutes", async () => {
    createSignIn();
    const { url, secret } = await signIn.begin(issuer, REDIRECT_URI);
    const state = new URL(url).searchParams.get("state");
    nowMs += 600_000;
    expect(await signIn.complete(secret, REDIRECT_URI, `code=c&state=${state}`)).toMatchObject(REJECTED);
  });

  test("metadata of another issuer, or of another spelling of it, are refused", async () => {
    for (const stated of ["https://login.example", `${issuer}/`]) {
      createSignIn();
      metadata = { issuer: stated };
      await expect(signIn.begin(issuer, REDIRECT_URI)).rejects.toMatchObject({ code: "issuer_unavailable" });
    }
  });

  test("an issuer without a client is none for the console", async () => {
    createSignIn({ clientId: undefined });
    await expect(signIn.begin(issuer, REDIRECT_URI)).rejects.toMatchObject({ code: "invalid_value" });
    expect(await signIn.admits({ issuer, subject: "ada", basis: "" })).toBe(false);
  });
});
