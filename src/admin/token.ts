import { hash } from "node:crypto";
import { crc32 } from "node:zlib";
import type { TokenRow } from "../stores/queries/accounts.ts";

/** Time for which a sign-in with an identity provider that has begun can be completed. */
export const SIGN_IN_LIFE_MS = 600_000;

/** Returns that many cryptographically random bytes. */
export type RandomBytes = (count: number) => Uint8Array;

/** Prefix of a token, by which people and secret scanners recognize it. */
export const TOKEN_MARK = "sk-tg-";
export const ADMIN_TOKEN_MARK = "tg-admin-";
type Mark = typeof TOKEN_MARK | typeof ADMIN_TOKEN_MARK;

const BASE_62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE_36 = BASE_62.slice(0, 10) + BASE_62.slice(36);
const SECRET_LENGTH = 43;
const CHECKSUM_LENGTH = 6;
const PREFIX_SECRET_LENGTH = 6;
const ID_LENGTH = 20;
const SECRET_SHAPE = /^[0-9A-Za-z]{49}$/;

/** Makes a token: its mark, 43 random base-62 characters (256 bits), and a checksum of six that finds typing mistakes. */
export function makeToken(random: RandomBytes, mark: Mark = TOKEN_MARK) {
  const body = mark + randomText(BASE_62, SECRET_LENGTH, random);
  const token = body + checksum(body);
  return { token, hash: hashOf(token), prefix: prefixOf(token, mark) };
}

/** Returns false for text that is no token, such as a mistyped one. */
export function isToken(text: string, mark: Mark = TOKEN_MARK): boolean {
  if (!text.startsWith(mark) || !SECRET_SHAPE.test(text.slice(mark.length))) return false;
  return checksum(text.slice(0, -CHECKSUM_LENGTH)) === text.slice(-CHECKSUM_LENGTH);
}

/** Returns the SHA-256 of an access token in hexadecimal digits, by which it is found; undefined for text that is no token. */
export function tokenHashHex(text: string): string | undefined {
  return isToken(text) ? hash("sha256", text, "hex") : undefined;
}

/** Returns the first characters of a presented token; null for text that may be another secret, entered by mistake. */
export function displayPrefix(text: string): string | null {
  const mark = [TOKEN_MARK, ADMIN_TOKEN_MARK].find((one) => text.startsWith(one));
  return mark !== undefined && SECRET_SHAPE.test(text.slice(mark.length)) ? prefixOf(text, mark) : null;
}

function prefixOf(token: string, mark: string): string {
  return token.slice(0, mark.length + PREFIX_SECRET_LENGTH);
}

/** A token at the only moment when its secret is known. */
export type NewSecret = ReturnType<typeof makeTokenRow>;

type TokenFields = Pick<
  TokenRow,
  "organizationId" | "name" | "scopes" | "models" | "limits" | "createdAtMs" | "expiresAtMs"
> &
  Partial<Pick<TokenRow, "callerId" | "createdBy" | "rotatedBy" | "pinned">>;

/** Makes the row and the secret of a token. A rotation passes the `callerId` on; otherwise it is the token's own id. */
export function makeTokenRow(random: RandomBytes, fields: TokenFields, id = makeId("tok", random)) {
  const { token, hash, prefix } = makeToken(random);
  return { token, row: tokenRowOf({ ...fields, id, hash, prefix, kind: "secret" }) };
}

/** Completes the row of a token that was not used yet. Takes nothing else from a row that it replaces. */
export function tokenRowOf(fields: TokenFields & Pick<TokenRow, "id" | "hash" | "prefix" | "kind">): TokenRow {
  const { id, organizationId, name, hash, prefix, kind, scopes, models, limits, createdAtMs, expiresAtMs } = fields;
  const { callerId = id, createdBy = null, rotatedBy = null, pinned = null } = fields;
  const terms = { scopes, models, limits, pinned, createdAtMs, expiresAtMs };
  const unused = { revokedAtMs: null, lastUsedAtMs: null, successorId: null };
  return { id, organizationId, name, hash, prefix, ...terms, ...unused, kind, callerId, createdBy, rotatedBy };
}

/** Makes an id, such as `org_` and 20 random characters of base 36. */
export function makeId(kind: string, random: RandomBytes): string {
  return `${kind}_${randomText(BASE_36, ID_LENGTH, random)}`;
}

/** Makes an id of the same form from texts, always the same one: nobody needs to look it up. */
export function idOfTexts(kind: string, ...texts: string[]): string {
  const digits = BigInt(`0x${hash("sha256", JSON.stringify([kind, ...texts]), "hex")}`).toString(36);
  return `${kind}_${digits.padStart(ID_LENGTH, "0").slice(0, ID_LENGTH)}`;
}

/** Digits and letters that are hard to confuse: those of Crockford's Base32. */
const BASE_32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CODE_LENGTH = 25;
const CODE_SHAPE = new RegExp(`^[${BASE_32}]{${CODE_LENGTH}}$`);

/** Makes the code of a voucher: 25 random characters (125 bits) in groups of five. Only its SHA-256 and first group are stored. */
export function makeCode(random: RandomBytes) {
  const secret = randomText(BASE_32, CODE_LENGTH, random);
  const groups = secret.match(/.{5}/g) ?? [];
  return { code: groups.join("-"), hash: hashOf(secret), prefix: groups[0] ?? "" };
}

/** Returns the hash of a code in any case, with any spaces and dashes, O for 0, and I or L for 1; undefined for other text. */
export function hashOfCode(text: string): Buffer | undefined {
  const secret = text.toUpperCase().replaceAll(/[\s-]/g, "").replaceAll("O", "0").replaceAll(/[IL]/g, "1");
  return CODE_SHAPE.test(secret) ? hashOf(secret) : undefined;
}

/** Makes a secret for a cookie: 43 random base-62 characters (256 bits). */
export function makeSecret(random: RandomBytes): string {
  return randomText(BASE_62, SECRET_LENGTH, random);
}

/** Returns the SHA-256 of a secret, which is stored in its place. */
export function hashOf(secret: string): Buffer {
  return hash("sha256", secret, "buffer");
}

/** Longest life of a role that claims have given. After it, the identity provider is asked again. */
export const CLAIMED_LIFE_MS = 3_600_000;
/** Longest time without a request in a session. */
export const SESSION_IDLE_MS = 8 * 3_600_000;

/** Returns the public id of a session: the hash of its secret, from which nobody can find the secret. */
export function idOfSession({ hash }: { hash: Uint8Array }): string {
  return `ses_${Buffer.from(hash).toString("hex")}`;
}

/** Returns the hash in the id of a session. An id of another form gives a hash that no session has. */
export function hashOfSession(id: string): Uint8Array {
  return Buffer.from(/^ses_([0-9a-f]{64})$/.exec(id)?.[1] ?? "", "hex");
}

/** Returns the id of a person at an identity provider. */
export function idOfPerson({ issuer, subject }: { issuer: string; subject: string }): string {
  return idOfTexts("idn", issuer, subject);
}

/** Returns the id of the token without a secret that stands for a person in an organization. */
export function identityTokenId({ issuer, subject }: { issuer: string; subject: string }, organizationId: string) {
  return idOfTexts("tok", issuer, subject, organizationId);
}

/** Returns the CRC-32 in base 62: six characters, padded with zeros, because 62^6 is more than 2^32. */
function checksum(body: string): string {
  let rest = crc32(body);
  let text = "";
  for (let place = 0; place < CHECKSUM_LENGTH; place += 1) {
    text = BASE_62[rest % 62] + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}

/** Returns uniformly random characters of an alphabet. Bytes past the last whole multiple of its length are discarded. */
function randomText(alphabet: string, length: number, random: RandomBytes): string {
  const limit = 256 - (256 % alphabet.length);
  let text = "";
  while (text.length < length) {
    for (const byte of random(length - text.length)) {
      if (byte < limit) text += alphabet[byte % alphabet.length];
    }
  }
  return text;
}

/** Makes the row of an identity, whose id follows from issuer and subject. */
export function identityRowOf(issuer: string, subject: string, createdAtMs: number, name: string | null = null) {
  return { id: idOfPerson({ issuer, subject }), issuer, subject, name, createdAtMs, blockedAtMs: null };
}
