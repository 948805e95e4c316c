import { errors, jwtVerify, type LocalJWKSet } from "jose";
import { isObject, type JsonObject } from "../api/json.ts";
import type { IssuerSettings } from "../config/identity-schema.ts";
import { ApiError } from "../errors.ts";
import type { IssuerKeys } from "./issuer-keys.ts";
import { CLAIMED_LIFE_MS } from "./token.ts";

const BYTES_MAX = 8 * 1024;
const SKEW_SECONDS = 60;
const SUBJECT_CHARACTERS_MAX = 255;
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]+$/;
/** RFC 9068, section 4. */
const TYPES = ["at+jwt", "application/at+jwt"];
/** Parameters by which a token would choose its own key, or change what is signed. None of them has a use here. */
const REFUSED_PARAMETERS = ["jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip"];

/** A JWT access token whose signature and claims are valid. */
export interface VerifiedJwt {
  settings: IssuerSettings;
  claims: JsonObject;
  keys: LocalJWKSet;
  /** The end of the token or of its role, in milliseconds since 1970, with the clock skew. */
  expiresAtMs: number;
}

/** Tests whether a token has the form of a JWT. */
export function isJwt(token: string): boolean {
  return COMPACT.test(token);
}

/**
 * Verifies a JWT access token (RFC 9068) of one of some issuers. Everything that needs no key is checked first. Its role lasts an
 * hour after it was issued, whenever it expires. Rejects with `invalid_token`, `expired_token` or `issuer_unavailable`.
 */
export async function verifyJwt(
  token: string,
  {
    issuers,
    keys,
    nowMs,
  }: { issuers: readonly IssuerSettings[]; keys: Pick<IssuerKeys, "of" | "refresh">; nowMs: number },
): Promise<VerifiedJwt> {
  if (token.length > BYTES_MAX) throw refused(`it is larger than ${BYTES_MAX} bytes`);
  const [header, payload] = token.split(".").map(partOf);
  if (header === undefined || payload === undefined) throw refused("its header or its claims are not a JSON object");
  const settings = issuers.find(({ issuer, audience }) => audience !== undefined && issuer === payload.iss);
  if (settings?.audience === undefined) throw refused("its issuer is not a configured one");
  const fault = headerFault(header, settings) ?? claimsFault(payload, nowMs);
  if (fault !== undefined) throw refused(fault);
  const expiresAtMs = endOf(payload, nowMs);
  const { issuer, audience, algorithms } = settings;
  const verify = async (): Promise<VerifiedJwt> => {
    const set = await keys.of(issuer);
    const claims = await verifySigned(token, set, { issuer, audience, algorithms, nowMs });
    return { settings, claims, keys: set, expiresAtMs };
  };
  try {
    return await verify().catch(async (error) => {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await keys.refresh(issuer);
      return verify();
    });
  } catch (error) {
    throw refusalOf(error);
  }
}

/** Verifies the signature, and then the values of the claims `iss`, `aud`, `exp` and `nbf`. Rejects with errors of `jose`. */
export async function verifySigned(
  token: string,
  set: LocalJWKSet,
  { nowMs, ...accepted }: { issuer: string; audience: string; algorithms: string[]; nowMs: number },
): Promise<JsonObject> {
  const times = { currentDate: new Date(nowMs), clockTolerance: SKEW_SECONDS };
  return (await jwtVerify(token, set, { ...accepted, ...times })).payload;
}

/** Decodes the header or the claims; undefined if they are no JSON object in which every member occurs once. */
function partOf(part: string): JsonObject | undefined {
  try {
    const bytes = Buffer.from(part, "base64url");
    // One text for each token: what is cached by its hash cannot be varied by unused bits.
    if (bytes.toString("base64url") !== part) return undefined;
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    const value: unknown = JSON.parse(text);
    // A member that occurs twice is parsed once: then there are more colons outside of texts than members.
    const colons = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, "").split(":").length - 1;
    return isObject(value) && colons === countMembers(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const own = Array.isArray(value) ? 0 : Object.keys(value).length;
  return Object.values(value).reduce((sum: number, member) => sum + countMembers(member), own);
}

function headerFault(header: JsonObject, { algorithms }: IssuerSettings): string | undefined {
  const { typ, alg, kid } = header;
  if (typeof typ !== "string" || !TYPES.includes(typ.toLowerCase())) return "its typ is not at+jwt";
  if (!algorithms.some((allowed) => allowed === alg)) return "its alg is not allowed for this issuer";
  if (kid !== undefined && typeof kid !== "string") return "its kid is not a text";
  const parameter = REFUSED_PARAMETERS.find((name) => Object.hasOwn(header, name));
  return parameter === undefined ? undefined : `its header has the parameter ${parameter}`;
}

/** Returns what is wrong with the types of the claims that RFC 9068, section 2.2, requires; their values are checked later. */
function claimsFault({ sub, client_id, jti, aud, exp, nbf, iat }: JsonObject, nowMs: number): string | undefined {
  for (const [name, value] of Object.entries({ sub, client_id, jti })) {
    if (typeof value !== "string" || value === "") return `its claim ${name} is not a text`;
  }
  if (String(sub).length > SUBJECT_CHARACTERS_MAX || /[\p{Cc}\p{Cs}]/u.test(String(sub))) {
    return "its subject is longer than 255 characters, or contains control characters or half of a surrogate pair";
  }
  const audiences: unknown[] = Array.isArray(aud) ? aud : [aud];
  if (!audiences.every((one) => typeof one === "string")) return "its audience is neither a text nor a list of texts";
  for (const [name, value] of Object.entries({ exp, iat, ...(nbf !== undefined && { nbf }) })) {
    if (typeof value !== "number" || !Number.isFinite(value)) return `its claim ${name} is not a time`;
  }
  return Number(iat) > nowMs / 1000 + SKEW_SECONDS ? "it was issued in the future" : undefined;
}

const ROLE_ENDED =
  "The JWT was issued more than an hour ago, as its claim iat says, and its role lasts an hour. Get a new one from its issuer.";

/** Returns the end of a token, or of its role, which may come first. Throws expired_token after it. */
function endOf({ exp, iat }: JsonObject, nowMs: number): number {
  const expiresAtMs = (Number(exp) + SKEW_SECONDS) * 1000;
  const roleEndsAtMs = (Number(iat) + SKEW_SECONDS) * 1000 + CLAIMED_LIFE_MS;
  if (nowMs < expiresAtMs && nowMs < roleEndsAtMs) return Math.min(expiresAtMs, roleEndsAtMs);
  throw new ApiError("expired_token", nowMs < expiresAtMs ? ROLE_ENDED : undefined);
}

function refused(reason: string): ApiError {
  return new ApiError("invalid_token", `The JWT is not valid: ${reason}.`);
}

function refusalOf(error: unknown): unknown {
  if (error instanceof errors.JWKSNoMatchingKey) return refused("its key is not one of its issuer");
  if (error instanceof errors.JWKSMultipleMatchingKeys)
    return refused("it does not say which key of its issuer signed it");
  if (error instanceof errors.JWTClaimValidationFailed)
    return refused(`its claim ${error.claim} is missing or not accepted`);
  // A key that cannot be used is a TypeError, such as a short one, or a DOMException, such as one of a point that is not on its curve.
  if ([errors.JOSEError, TypeError, DOMException].some((kind) => error instanceof kind)) {
    return refused("its signature is not valid");
  }
  return error;
}
