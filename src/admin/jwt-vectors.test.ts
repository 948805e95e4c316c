import { readFileSync } from "node:fs";
import { createLocalJWKSet, errors } from "jose";
import { describe, expect, test } from "vitest";
import { JWT_ALGORITHMS } from "../config/identity-schema.ts";
import { publicKeysIn } from "./issuer-keys.ts";
import { isJwt, verifyJwt, verifySigned } from "./jwt.ts";

/** Published vectors; `test/vectors/README.md` names their sources. */
function vectors<Vector>(name: string): Vector[] {
  return JSON.parse(readFileSync(new URL(`../../test/vectors/${name}.json`, import.meta.url), "utf8"));
}
interface WycheproofGroup {
  comment: string;
  keys: object[];
  tests: { tcId: number; comment: string; jws: unknown; result: "valid" | "invalid" }[];
}
interface CookbookExample {
  file: string;
  keys: object[];
  compact?: string;
  json?: object;
  json_flat?: object;
}

const ACCEPTED = { issuer: "https://login.example.com", audience: "a", algorithms: [...JWT_ALGORITHMS], nowMs: 0 };

/**
 * Verifies a signature as that of an access token, with every algorithm that a configuration can allow. The payloads are no
 * claims, which is found after the signature was verified.
 */
async function isSigned(jws: unknown, keys: object[]): Promise<boolean> {
  if (typeof jws !== "string" || !isJwt(jws)) return false;
  const error = await verifySigned(jws, createLocalJWKSet({ keys: publicKeysIn(keys) as never }), ACCEPTED).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof errors.JWTInvalid) return true;
  expect([errors.JOSEError, TypeError, DOMException].some((kind) => error instanceof kind)).toBe(true);
  return false;
}

/** Expects that a token is refused before a key is needed. */
async function expectRefused(token: string): Promise<void> {
  const needed = () => Promise.reject(new Error("A key was needed"));
  const settings = { ...ACCEPTED, scopes: [], roles: [], pins: {} };
  const verified = verifyJwt(token, { issuers: [settings], keys: { of: needed, refresh: needed }, nowMs: 0 });
  await expect(verified).rejects.toMatchObject({ code: "invalid_token" });
}

/** Vectors of valid signatures that are refused here: for an access token of an issuer they are not acceptable. */
const STRICTER: Record<string, Record<string, number[]>> = {
  "wycheproof-json-web-signature": {
    "a secret is no public key": [1, 348, 352, 357, 358, 359, 372, 373, 376, 377],
    "a JWT has a payload": [259, 264, 268, 272, 320, 325],
    "the key is for another algorithm: PS256 and not PS384, ES521 and not ES512": [346, 347, 350, 351],
  },
  "wycheproof-json-web-key": { "a secret is no public key": [2, 13, 14, 15] },
};
/** The keys of a trusted issuer are not searched for the weakness ROCA of old smart cards. */
const LENIENT: Record<string, number[]> = { "wycheproof-json-web-key": [7] };

describe.each([
  ["wycheproof-json-web-signature", 401],
  ["wycheproof-json-web-key", 26],
] as const)("Wycheproof's vectors: %s", (name, count) => {
  const groups = vectors<WycheproofGroup>(name);

  test("each signature is accepted or refused as published, or stricter", async () => {
    const stricter = new Set(Object.values(STRICTER[name] ?? {}).flat());
    const lenient = new Set(LENIENT[name]);
    const found: Record<string, boolean> = {};
    const expected: Record<string, boolean> = {};
    for (const { comment: group, keys, tests } of groups) {
      for (const { tcId, comment, jws, result } of tests) {
        const title = `${tcId} ${group}: ${comment}`;
        found[title] = await isSigned(jws, keys);
        expected[title] = lenient.has(tcId) || (result === "valid" && !stricter.has(tcId));
      }
    }
    expect(found).toEqual(expected);
    expect(Object.keys(found)).toHaveLength(count);
  });

  test("none is an access token", async () => {
    for (const { jws } of groups.flatMap(({ tests }) => tests)) {
      if (typeof jws === "string") await expectRefused(jws);
    }
  });
});

describe("the cookbook of RFC 7520, and RFC 8037", () => {
  const examples = vectors<CookbookExample>("jose-cookbook");
  const SIGNED = ["jws/4_1.rsa_v15_signature.json", "jws/4_2.rsa-pss_signature.json", "jws/4_3.ecdsa_signature.json"];

  test.each(examples)("$file", async ({ file, keys, compact, json, json_flat }) => {
    const isAcceptable = [...SIGNED, "curve25519/jws.json"].includes(file);
    expect(await isSigned(compact, keys)).toBe(isAcceptable);
    for (const serialized of [json, json_flat]) expect(await isSigned(JSON.stringify(serialized), keys)).toBe(false);
    if (compact === undefined) return;
    await expectRefused(compact);
    const [header, payload = "", signature] = compact.split(".");
    expect(await isSigned(`${header}.${Buffer.from(`x${payload}`).toString("base64url")}.${signature}`, keys)).toBe(
      false,
    );
  });
});
