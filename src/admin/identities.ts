import { LRUCache } from "lru-cache";
import { DEFAULT_SCOPES, type Principal, SCOPES, type Scope } from "../api/principal.ts";
import { accessOfClaims, type ClaimedAccess, nameOfClaims } from "../config/identity.ts";
import type { IssuerSettings } from "../config/identity-schema.ts";
import { ApiError } from "../errors.ts";
import type { IdentityRow } from "../stores/queries/identities.ts";
import type { Store } from "../stores/store.ts";
import { type AuditTime, auditRow, SERVICE_ACTOR } from "./audit.ts";
import type { IssuerKeys } from "./issuer-keys.ts";
import { type VerifiedJwt, verifyJwt } from "./jwt.ts";
import { type Administrator, MEMBER_SCOPE } from "./sessions.ts";
import { hashOf, identityRowOf, identityTokenId, tokenRowOf } from "./token.ts";

export interface IdentitiesOptions extends AuditTime {
  rows: Store["identities"];
  accounts: Pick<Store["accounts"], "organizationNamed">;
  keys: Pick<IssuerKeys, "of" | "refresh">;
  issuers: () => readonly IssuerSettings[];
  /** Returns the principal of the token with a hash in hexadecimal digits, as for a token with a secret. */
  authenticate: (hashHex: string) => Principal | Promise<Principal>;
}

/** A person or a caller whom an issuer identifies, with their access. */
interface Identified extends ClaimedAccess {
  identity: IdentityRow;
  name: string;
}

interface CachedJwt extends VerifiedJwt {
  who: Identified;
  scopes: ReadonlySet<Scope>;
}

/** Those of a JWT without scopes of this service. */
const UNSCOPED: ReadonlySet<Scope> = new Set(DEFAULT_SCOPES);
const VERIFIED_MAX = 10_000;
const BOOKED_MAX = 50_000;
/** In place of the first characters of a secret. */
const PREFIX = "identity";

/** People and callers whom issuers identify. In an organization each has a token row without a secret, as if it were a token. */
export class Identities {
  readonly #options: IdentitiesOptions;
  /** Verified tokens by their hash, so that the cache contains no secrets. */
  readonly #verified = new LRUCache<string, CachedJwt>({ max: VERIFIED_MAX });
  /** Hashes of the token rows that exist. */
  readonly #booked = new LRUCache<string, true>({ max: BOOKED_MAX });

  constructor(options: IdentitiesOptions) {
    this.#options = options;
  }

  /** Returns the principal of a JWT on `/v1`. Rejects with ApiError. */
  async principalOf(jwt: string): Promise<Principal> {
    const { who, scopes } = await this.#verify(jwt);
    const { role, organizationId, identity, name } = who;
    if (organizationId === null || role === "billing") {
      const message = `The role \`${role}\` sends no requests to the models of an organization.`;
      throw new ApiError("insufficient_role", message);
    }
    const { hashHex } = await this.tokenOf({ ...identity, name }, organizationId);
    const principal = await this.#options.authenticate(hashHex);
    const allowed = [...principal.scopes].filter((scope) => scopes.has(scope));
    return { ...principal, scopes: new Set(allowed), pins: { ...principal.pins, ...who.pins } };
  }

  /** Returns the administrator of a JWT on `/admin/v1`. Rejects with ApiError. */
  async administratorOf(jwt: string): Promise<Administrator> {
    const { who, scopes } = await this.#verify(jwt);
    if (scopes !== UNSCOPED && !scopes.has(MEMBER_SCOPE)) {
      const message = `On /admin/v1, a JWT that has scopes of this service needs \`${MEMBER_SCOPE}\`.`;
      throw new ApiError("insufficient_scope", message);
    }
    const { role, organizationId, pins, basis, identity, name } = who;
    const { rows } = this.#options;
    const { id, issuer, subject } = identity;
    const stored = await rows.identity(id);
    if (stored === undefined) await rows.insertIdentity(identity);
    else if (stored.blockedAtMs !== null) throw new ApiError("account_blocked");
    const person = { issuer, subject, name, role, organizationId, pins, basis, signOutUrl: null };
    return { role, id, name, prefix: null, organizationId, token: null, person, scopes, session: null };
  }

  /** Verifies a JWT, or finds it among those that were verified with the present keys and settings. */
  async #verify(jwt: string): Promise<CachedJwt> {
    const { accounts, keys, issuers, clock } = this.#options;
    const nowMs = clock();
    const key = hashOf(jwt).toString("hex");
    const earlier = this.#verified.get(key);
    if (earlier !== undefined && nowMs < earlier.expiresAtMs && issuers().includes(earlier.settings)) {
      if ((await keys.of(earlier.settings.issuer)) === earlier.keys) return earlier;
    }
    const verified = await verifyJwt(jwt, { issuers: issuers(), keys, nowMs });
    const { settings, claims } = verified;
    const access = accessOfClaims(settings, claims);
    if (access === undefined) {
      throw new ApiError("no_role", "Your account at the identity provider has no role in this service.");
    }
    const organizationId = access.organizationId && (await accounts.organizationNamed(access.organizationId))?.id;
    if (organizationId === undefined) {
      throw new ApiError("no_role", "Your organization does not exist in this service.");
    }
    const name = nameOfClaims(claims, settings.issuer);
    const identity = identityRowOf(settings.issuer, String(claims.sub), nowMs, name);
    const who = { ...access, organizationId, identity, name };
    const scopes = typeof claims.scope === "string" ? claims.scope.split(" ") : [];
    const known = SCOPES.filter((one) => scopes.includes(one));
    const cached = { ...verified, who, scopes: known.length > 0 ? new Set(known) : UNSCOPED };
    this.#verified.set(key, cached);
    return cached;
  }

  /** Returns the token that stands for an identity in an organization, and writes its row at its first use. */
  async tokenOf({ issuer, subject, name }: Record<"issuer" | "subject" | "name", string>, organizationId: string) {
    const { rows, clock } = this.#options;
    const identity = identityRowOf(issuer, subject, clock(), name);
    // Never the hash of a token with a secret: those begin with their mark.
    const hash = hashOf(JSON.stringify([issuer, subject, organizationId]));
    const id = identityTokenId(identity, organizationId);
    const token = { id, hashHex: hash.toString("hex") };
    if (this.#booked.has(token.hashHex)) return token;
    const terms = { scopes: [...DEFAULT_SCOPES], models: null, limits: null, expiresAtMs: null };
    const origin = { kind: "identity", createdAtMs: identity.createdAtMs, createdBy: identity.id } as const;
    const row = tokenRowOf({ organizationId, id, name, hash, prefix: PREFIX, ...terms, ...origin });
    const after = { name, prefix: PREFIX, scopes: row.scopes, issuer, subject };
    const change = { action: "token.create", organizationId, subjectId: id, after };
    await rows.insertIdentityToken(identity, row, auditRow(SERVICE_ACTOR, change, this.#options));
    this.#booked.set(token.hashHex, true);
    return token;
  }
}
