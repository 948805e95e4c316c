import { createHmac } from "node:crypto";
import {
  CompactSign,
  createLocalJWKSet,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  type JSONWebKeySet,
  type LocalJWKSet,
} from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import type { IssuerSettings } from "../config/identity-schema.ts";
import { isJwt, verifyJwt } from "./jwt.ts";

const ISSUER = "https://login.example.com";
const AUDIENCE = "https://tollgate.example.com";
const NOW_SECONDS = 1_900_000_000;
const SETTINGS: IssuerSettings = {
  issuer: ISSUER,
  audience: AUDIENCE,
  scopes: [],
  algorithms: ["RS256", "ES256", "EdDSA"],
  roles: [],
  pins: {},
};
const OTHER: IssuerSettings = { ...SETTINGS, issuer: "https://other.example.com", algorithms: ["ES256"] };
const SIGN_IN_ONLY: IssuerSettings = { ...SETTINGS, issuer: "https://console.example.com", audience: undefined };

const HEADER = { alg: "RS256", typ: "at+jwt", kid: "rsa" };
const CLAIMS = {
  ...{ iss: ISSUER, aud: AUDIENCE, sub: "user-1", client_id: "client-1", jti: "id-1" },
  ...{ iat: NOW_SECONDS, exp: NOW_SECONDS + 300 },
};

type Key = Awaited<ReturnType<typeof generateKeyPair>>["privateKey"];
let rsa: Key;
let ec: Key;
let stranger: Key;
let small: Key;
let publicPem: string;
let jwks: JSONWebKeySet;
let set: LocalJWKSet;
/** Times that the keys of an issuer were needed, and read again. */
let asked = 0;
let refreshed = 0;

const keys = {
  async of() {
    asked += 1;
    return set;
  },
  async refresh() {
    refreshed += 1;
  },
};

beforeAll(async () => {
  const [rsaPair, ecPair, strangerPair, smallPair] = await Promise.all([
    generateKeyPair("RS256", { extractable: true }),
    generateKeyPair("ES256", { extractable: true }),
    generateKeyPair("RS256", { extractable: true }),
    crypto.subtle.generateKey(
      { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength: 1024, publicExponent: new Uint8Array([1, 0, 1]) },
      true,
      ["sign", "verify"],
    ),
  ]);
  [rsa, ec, stranger, small] = [rsaPair.privateKey, ecPair.privateKey, strangerPair.privateKey, smallPair.privateKey];
  publicPem = await exportSPKI(rsaPair.publicKey);
  const published = [
    { ...(await exportJWK(rsaPair.publicKey)), kid: "rsa", alg: "RS256", use: "sig" },
    { ...(await exportJWK(ecPair.publicKey)), kid: "ec", alg: "ES256" },
    { ...(await exportJWK(strangerPair.publicKey)), kid: "encryption", use: "enc" },
    { ...(await exportJWK(smallPair.publicKey)), kid: "small" },
    { ...(await exportJWK(ecPair.publicKey)), y: "AAAA", kid: "broken" },
    { ...(await exportJWK(rsaPair.publicKey)), kid: "twin" },
    { ...(await exportJWK(strangerPair.publicKey)), kid: "twin" },
  ];
  jwks = { keys: published };
  set = createLocalJWKSet(jwks);
});

const base64url = (text: string | Uint8Array) => Buffer.from(text).toString("base64url");
/** Signs texts as they are, so that they can be anything but what a library would write. */
async function signed(header: string, payload: string, key: Key = rsa, alg = "RS256"): Promise<string> {
  const algorithms: Record<string, Parameters<typeof crypto.subtle.sign>[0]> = {
    RS256: { name: "RSASSA-PKCS1-v1_5" },
    ES256: { name: "ECDSA", hash: "SHA-256" },
  };
  const input = `${base64url(header)}.${base64url(payload)}`;
  const signature = await crypto.subtle.sign(algorithms[alg] ?? "", key, Buffer.from(input));
  return `${input}.${base64url(new Uint8Array(signature))}`;
}
const token = (header: object = {}, claims: object = {}, key?: Key, alg?: string) =>
  signed(JSON.stringify({ ...HEADER, ...header }), JSON.stringify({ ...CLAIMS, ...claims }), key, alg);
/** Signs a payload that is a text, with a member more or less than JSON.stringify would write. */
const withClaimsText = (change: (text: string) => string) =>
  signed(JSON.stringify(HEADER), change(JSON.stringify(CLAIMS)));
const withHeaderText = (change: (text: string) => string) =>
  signed(change(JSON.stringify(HEADER)), JSON.stringify(CLAIMS));

const verify = (jwt: string, nowSeconds = NOW_SECONDS) =>
  verifyJwt(jwt, { issuers: [SETTINGS, OTHER, SIGN_IN_ONLY], keys, nowMs: nowSeconds * 1000 });

describe("a JWT is accepted", () => {
  test.each<[string, () => Promise<string>]>([
    ["of an allowed algorithm", () => token()],
    ["of another allowed algorithm", () => token({ alg: "ES256", kid: "ec" }, {}, ec, "ES256")],
    ["with its type as a media type", () => token({ typ: "application/at+jwt" })],
    ["with its type in capitals", () => token({ typ: "AT+JWT" })],
    ["for several audiences, one of them this service", () => token({}, { aud: ["https://a.example", AUDIENCE] })],
    [
      "with unknown parameters and claims",
      () => token({ x5t: "abc", private: true }, { nested: { a: [{ b: "c:d" }] } }),
    ],
    ["that expired within the clock skew", () => token({}, { exp: NOW_SECONDS - 59 })],
    ["that was issued an hour ago, within the clock skew", () => token({}, { iat: NOW_SECONDS - 3_659 })],
    ["that begins within the clock skew", () => token({}, { nbf: NOW_SECONDS + 60 })],
    ["that was issued within the clock skew", () => token({}, { iat: NOW_SECONDS + 60 })],
    ["with fractions of seconds", () => token({}, { exp: NOW_SECONDS + 0.5, iat: NOW_SECONDS - 0.5 })],
  ])("%s", async (_, make) => {
    const { settings, claims } = await verify(await make());
    expect([settings, claims.sub]).toEqual([SETTINGS, "user-1"]);
  });
});

/** Refused without asking for a key, so that it costs no check of a signature. */
const CHEAP: [string, () => Promise<string> | string, RegExp, string?][] = [
  ["that has expired", () => token({}, { exp: NOW_SECONDS - 60 }), /expired/, "expired_token"],
  ["that expired before 1970", () => token({}, { exp: -1 }), /expired/, "expired_token"],
  ["that was issued an hour ago", () => token({}, { iat: NOW_SECONDS - 3_660 }), /its claim iat/, "expired_token"],
  ["that was issued before 1970", () => token({}, { iat: -1e300 }), /its claim iat/, "expired_token"],
  ["without a signature: alg none", () => token({ alg: "none" }), /alg/],
  ["without a signature: alg None", () => token({ alg: "None" }), /alg/],
  ["without alg", () => token({ alg: undefined }), /alg/],
  ["whose alg is a list", () => token({ alg: ["RS256"] }), /alg/],
  ["of an algorithm with a secret", () => token({ alg: "HS256" }), /alg/],
  ["of an algorithm in small letters", () => token({ alg: "rs256" }), /alg/],
  ["of an algorithm that is not allowed", () => token({ alg: "RS384" }), /alg/],
  ["of an algorithm that another issuer allows only", () => token({}, { iss: OTHER.issuer }), /alg/],
  ["with the public key as the secret of HS256", () => hmac(publicPem), /alg/],
  ["with an empty secret", () => hmac(""), /alg/],
  ["of the type JWT", () => token({ typ: "JWT" }), /typ/],
  ["of the type of an ID token", () => token({ typ: "id_token+jwt" }), /typ/],
  ["of the type of a logout token", () => token({ typ: "logout+jwt" }), /typ/],
  ["without a type", () => token({ typ: undefined }), /typ/],
  ["whose type is a list", () => token({ typ: ["at+jwt"] }), /typ/],
  ["whose type has a parameter", () => token({ typ: "at+jwt; a=b" }), /typ/],
  ["with the address of its own keys", () => token({ jku: "https://evil.example/keys" }), /jku/],
  ["with its own key", () => token({ jwk: jwks.keys[0] }), /jwk/],
  ["with the address of its own certificate", () => token({ x5u: "https://evil.example/cert" }), /x5u/],
  ["with its own certificate", () => token({ x5c: ["AAAA"] }), /x5c/],
  ["with a critical parameter", () => token({ crit: ["exp"], exp: 1 }), /crit/],
  ["with no critical parameter", () => token({ crit: [] }), /crit/],
  ["with an unencoded payload", () => token({ b64: false, crit: ["b64"] }), /crit|b64/],
  ["that is compressed", () => token({ zip: "DEF" }), /zip/],
  ["that is encrypted", () => token({ enc: "A256GCM" }), /enc/],
  ["whose kid is a number", () => token({ kid: 1 }), /kid/],
  ["whose kid is an object", () => token({ kid: { $ne: "" } }), /kid/],
  ["whose kid is null", () => token({ kid: null }), /kid/],
  ["of an unknown issuer", () => token({}, { iss: "https://evil.example" }), /issuer/],
  ["of an issuer with a slash more", () => token({}, { iss: `${ISSUER}/` }), /issuer/],
  ["of an issuer in capitals", () => token({}, { iss: ISSUER.toUpperCase() }), /issuer/],
  ["of an issuer that is a list", () => token({}, { iss: [ISSUER] }), /issuer/],
  ["of an issuer for sign-in only", () => token({}, { iss: SIGN_IN_ONLY.issuer }), /issuer/],
  ["without an issuer", () => token({}, { iss: undefined }), /issuer/],
  ["for an audience that is a number", () => token({}, { aud: 1 }), /audience/],
  ["for audiences, one of them a number", () => token({}, { aud: [AUDIENCE, 1] }), /audience/],
  ["for an audience that is an object", () => token({}, { aud: { 0: AUDIENCE } }), /audience/],
  ["without an audience", () => token({}, { aud: undefined }), /audience/],
  ["without a subject", () => token({}, { sub: undefined }), /sub/],
  ["with an empty subject", () => token({}, { sub: "" }), /sub/],
  ["whose subject is a number", () => token({}, { sub: 1 }), /sub/],
  ["with a long subject", () => token({}, { sub: "x".repeat(256) }), /subject/],
  ["with a control character in its subject", () => token({}, { sub: "a\u0000b" }), /subject/],
  ["without a client", () => token({}, { client_id: undefined }), /client_id/],
  ["without an id", () => token({}, { jti: undefined }), /jti/],
  ["without an expiry", () => token({}, { exp: undefined }), /exp/],
  ["whose expiry is a text", () => token({}, { exp: String(NOW_SECONDS + 300) }), /exp/],
  ["that never expires", () => withClaimsText((text) => text.replace(/"exp":\d+/, '"exp":1e999')), /exp/],
  ["whose expiry is null", () => token({}, { exp: null }), /exp/],
  ["without the time of its issue", () => token({}, { iat: undefined }), /iat/],
  ["that was issued in the future", () => token({}, { iat: NOW_SECONDS + 61 }), /issued in the future/],
  ["whose beginning is a text", () => token({}, { nbf: "0" }), /nbf/],
  ["whose beginning is null", () => token({}, { nbf: null }), /nbf/],
  ["with a claim twice", () => withClaimsText((text) => text.replace("{", '{"sub":"admin",')), /JSON object/],
  [
    "with a nested claim twice",
    () => withClaimsText((text) => text.replace("{", '{"a":[{"b":1,"b":2}],')),
    /JSON object/,
  ],
  [
    "with a claim twice, once escaped",
    () => withClaimsText((text) => text.replace("{", '{"\\u0073ub":"admin",')),
    /JSON object/,
  ],
  ["with alg twice", () => withHeaderText((text) => text.replace("{", '{"alg":"none",')), /JSON object/],
  ["with claims that are a list", () => withClaimsText((text) => `[${text}]`), /JSON object/],
  ["with claims that are null", () => withClaimsText(() => "null"), /JSON object/],
  ["with text after its claims", () => withClaimsText((text) => `${text}{}`), /JSON object/],
  [
    "with claims that are no UTF-8",
    () => `${base64url(JSON.stringify(HEADER))}.${base64url(Uint8Array.of(0x7b, 0xff, 0x7d))}.AAAA`,
    /JSON object/,
  ],
  ["that begins with a byte order mark", () => withHeaderText((text) => `\uFEFF${text}`), /JSON object/],
  [
    "with unused bits in its header",
    async () => (await token({ x5t: "a" })).replace(/^([\w-]+)\./, (_, header) => `${varied(header)}.`),
    /JSON object/,
  ],
  ["that is larger than 8 KiB", () => token({}, { padding: "x".repeat(8_192) }), /larger/],
  [
    "with a prototype for a claim",
    () => withClaimsText((text) => text.replace(/"sub":"[^"]*"/, '"__proto__":{"sub":"admin"}')),
    /sub/,
  ],
];

/** Refused by its key, its signature or a value that is checked with it. */
const DEAR: [string, () => Promise<string> | string, RegExp][] = [
  ["for another audience", () => token({}, { aud: "https://a.example" }), /aud/],
  ["for other audiences", () => token({}, { aud: ["https://a.example", "https://b.example"] }), /aud/],
  ["for an audience that begins with this one", () => token({}, { aud: `${AUDIENCE}.evil.example` }), /aud/],
  ["for no audience", () => token({}, { aud: [] }), /aud/],
  ["that begins later", () => token({}, { nbf: NOW_SECONDS + 61 }), /nbf/],
  ["signed with another key", () => token({}, {}, stranger), /signature/],
  ["signed with a key for encryption", () => token({ kid: "encryption" }, {}, stranger), /key/],
  ["with the kid of a key of another algorithm", () => token({ kid: "ec" }), /key/],
  ["with an unknown kid", () => token({ kid: "new" }), /key/],
  ["with a path as kid", () => token({ kid: "../../../../dev/null" }), /key/],
  ["with a statement as kid", () => token({ kid: "rsa' or '1'='1" }), /key/],
  ["with an empty kid", () => token({ kid: "" }), /key/],
  ["without a kid where several keys fit", () => token({ kid: undefined }), /which key/],
  ["with the kid of two keys", () => token({ kid: "twin" }), /which key/],
  ["signed with a short key", () => token({ kid: "small" }, {}, small), /signature/],
  [
    "of a key that its issuer publishes broken",
    () => token({ alg: "ES256", kid: "broken" }, {}, ec, "ES256"),
    /signature/,
  ],
  [
    "with the signature of other claims",
    async () => mixed(await token(), await token({}, { sub: "admin" })),
    /signature/,
  ],
  ["with a shortened signature", async () => (await token()).slice(0, -8), /signature/],
  [
    "with a signature of zeros for ES256",
    async () => zeroed(await token({ alg: "ES256", kid: "ec" }, {}, ec, "ES256")),
    /signature/,
  ],
];

function hmac(secret: string): string {
  const input = `${base64url(JSON.stringify({ ...HEADER, alg: "HS256" }))}.${base64url(JSON.stringify(CLAIMS))}`;
  return `${input}.${createHmac("sha256", secret).update(input).digest("base64url")}`;
}
function mixed(one: string, other: string): string {
  const [header, payload] = other.split(".");
  return `${header}.${payload}.${one.split(".")[2]}`;
}
const zeroed = (jwt: string) => jwt.replace(/[\w-]+$/, base64url(new Uint8Array(64)));
/** Changes the bits of the last character that stand for no byte. */
function varied(part: string): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  expect(part.length % 4).not.toBe(0);
  return part.slice(0, -1) + alphabet[alphabet.indexOf(part.at(-1) ?? "") + 1];
}

describe("a JWT is refused", () => {
  test("by more than 60 vectors", () => {
    expect(CHEAP.length + DEAR.length).toBeGreaterThan(80);
  });

  test.each(CHEAP)("%s, without a key", async (_, make, message, code = "invalid_token") => {
    const before = asked;
    const jwt = await make();
    expect(isJwt(jwt)).toBe(true);
    await expect(verify(jwt)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
    expect(asked).toBe(before);
  });

  test.each(DEAR)("%s", async (_, make, message) => {
    const [before, code] = [asked, "invalid_token"];
    await expect(verify(await make())).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
    expect(asked).toBeGreaterThan(before);
  });

  test("only an unknown key makes the keys be read again", async () => {
    const before = refreshed;
    await verify(await token({}, {}, stranger)).catch(() => undefined);
    expect(refreshed).toBe(before);
    await verify(await token({ kid: "new" })).catch(() => undefined);
    expect(refreshed).toBe(before + 1);
  });
});

test("a token of a library is verified, and says until when", async () => {
  const jwt = await new CompactSign(Buffer.from(JSON.stringify(CLAIMS))).setProtectedHeader(HEADER).sign(rsa);
  expect((await verify(jwt)).expiresAtMs).toBe((CLAIMS.exp + 60) * 1000);
  const long = await token({}, { exp: NOW_SECONDS + 86_400, iat: NOW_SECONDS - 10 });
  expect((await verify(long)).expiresAtMs).toBe((NOW_SECONDS - 10 + 3_660) * 1000);
});

test.each(["", "a.b", "a.b.c.d", "sk-tg-abc", "a..c", "a.b.", ".b.c", "a b.c.d", "a.b.c="])("%j is no JWT", (text) => {
  expect(isJwt(text)).toBe(false);
});
