import { createHmac, hash } from "node:crypto";
import { decodeProtectedHeader } from "jose";
import { LRUCache } from "lru-cache";
import type { AuthorizationCodeGrantChecks, ClientAuth, Configuration, TokenEndpointResponse } from "openid-client";
import { isObject, type JsonObject } from "../api/json.ts";
import { printable } from "../api/wording.ts";
import { accessOfClaims, givesAccess, NAME_CHARACTERS_MAX, nameOfClaims } from "../config/identity.ts";
import type { IssuerSettings } from "../config/identity-schema.ts";
import { ApiError } from "../errors.ts";
import type { Person } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import type { SignInFailure } from "./sessions.ts";
import { identityRowOf, idOfPerson, makeSecret, type RandomBytes, SIGN_IN_LIFE_MS } from "./token.ts";

export interface OpenIdSignInOptions {
  issuers(): readonly IssuerSettings[];
  accounts: Pick<Store["accounts"], "organizationNamed">;
  identities: Pick<Store["identities"], "identity" | "insertIdentity">;
  clock: () => number;
  random: RandomBytes;
  log: Log;
}

/** Metadata that begin sign-ins are kept for this time, so that a flood of them is no flood of requests to the provider. */
const METADATA_LIFE_MS = 60_000;
const PROVIDER_TIMEOUT_SECONDS = 10;
const CLOCK_TOLERANCE_SECONDS = 60;
/** OpenID Connect Core, section 2. */
const SUBJECT_CHARACTERS_MAX = 255;
const REASON_CHARACTERS_MAX = 300;
/** A longer ID token does not fit into a URL. The provider then asks who signs out. */
const HINT_CHARACTERS_MAX = 4_000;

/** Signs people in with OpenID Connect. State, nonce and PKCE derive from a secret in a cookie, so nothing is stored meanwhile. */
export class OpenIdSignIn {
  readonly #options: OpenIdSignInOptions;
  readonly #configurations = new LRUCache<IssuerSettings, Configuration>({
    max: 100,
    ttl: METADATA_LIFE_MS,
    fetchMethod: discover,
  });

  constructor(options: OpenIdSignInOptions) {
    this.#options = options;
  }

  /** Returns whether a person may still have a session: the settings that gave it are unchanged, and they are not blocked. */
  async admits(person: Pick<Person, "issuer" | "subject" | "basis">): Promise<boolean> {
    if (!givesAccess(this.#options.issuers(), person)) return false;
    const identity = await this.#options.identities.identity(idOfPerson(person));
    return (identity?.blockedAtMs ?? null) === null;
  }

  /** Begins a sign-in. Returns the provider's address, and the secret for a cookie. Rejects with invalid_value or issuer_unavailable. */
  async begin(issuer: string, redirectUri: string, prompt?: "login"): Promise<{ url: string; secret: string }> {
    const settings = this.#clients().find((client) => client.issuer === issuer);
    if (settings === undefined) {
      const known = this.#clients().map((client) => client.issuer);
      const allowed = known.length === 0 ? "none is configured for sign-in" : `allowed: ${known.join(", ")}`;
      throw new ApiError("invalid_value", `Invalid 'issuer': ${allowed}.`, { param: "issuer" });
    }
    const { buildAuthorizationUrl, calculatePKCECodeChallenge } = await import("openid-client");
    const configuration = await this.#configurationOf(settings);
    const { clock, random } = this.#options;
    const secret = makeSecret(random);
    const { state, nonce, verifier } = checksOf(secret, issuer, clock() + SIGN_IN_LIFE_MS);
    const url = buildAuthorizationUrl(configuration, {
      ...{ redirect_uri: redirectUri, scope: settings.scopes.join(" "), state, nonce },
      ...{ code_challenge: await calculatePKCECodeChallenge(verifier), code_challenge_method: "S256" },
      ...(prompt !== undefined && { prompt }),
    });
    return { url: url.href, secret };
  }

  /** Completes a sign-in by the query of the redirect. Returns the person, or why they are refused. Rejects with issuer_unavailable. */
  async complete(secret: string | undefined, redirectUri: string, query: string) {
    const state = new URLSearchParams(query).get("state") ?? "";
    const expiresAtMs = Number.parseInt(state, 10);
    const isOwn = ({ issuer }: IssuerSettings) => checksOf(secret ?? "", issuer, expiresAtMs).state === state;
    const settings = secret === undefined ? undefined : this.#clients().find(isOwn);
    if (secret === undefined || settings === undefined || this.#options.clock() >= expiresAtMs) {
      return refusal("rejected_response", "The sign-in has expired, or was not begun in this browser. Start again.");
    }
    const { nonce, verifier } = checksOf(secret, settings.issuer, expiresAtMs);
    const checks = { expectedState: state, expectedNonce: nonce, pkceCodeVerifier: verifier };
    const answer = await this.#answerOf(settings, new URL(`${redirectUri}?${query}`), checks);
    return "error" in answer ? answer : this.#outcomeOf(settings, answer);
  }

  /** Exchanges the code in an address for tokens, and returns their claims. */
  async #answerOf(settings: IssuerSettings, url: URL, checks: AuthorizationCodeGrantChecks) {
    // New keys count at once.
    const configuration = await this.#configurationOf(settings, { forceRefresh: true });
    try {
      const { authorizationCodeGrant, fetchUserInfo } = await import("openid-client");
      const tokens = await authorizationCodeGrant(configuration, url, checks);
      const stated = checkedClaims(tokens, tokens.claims(), settings);
      // Roles are matched in their order, so a claim that only this endpoint has can decide which one matches first.
      const hasMore = configuration.serverMetadata().userinfo_endpoint !== undefined;
      const more = hasMore ? await fetchUserInfo(configuration, tokens.access_token, stated.sub) : {};
      const signOutUrl = await signOutUrlOf(configuration, tokens, url.origin + url.pathname);
      return { claims: { ...more, ...stated }, signOutUrl };
    } catch (error) {
      const { issuer } = settings;
      this.#options.log.warn(
        { issuer, err: error, ...mismatchOf(error) },
        "a sign-in with an identity provider failed",
      );
      if (isAway(error)) throw unavailable(settings, error);
      return refusal("rejected_response", refusalText(settings, error), labelOf(settings));
    }
  }

  async #outcomeOf(
    settings: IssuerSettings,
    { claims, signOutUrl }: { claims: JsonObject & { sub: string }; signOutUrl: string | null },
  ) {
    const { issuer } = settings;
    const name = nameOfClaims(claims, issuer);
    const account = `${name} (${labelOf(settings)})`;
    const access = accessOfClaims(settings, claims);
    if (access === undefined) {
      const message = `You are signed in to ${labelOf(settings)} as ${name}, but this account has no role here. Ask an operator for access, or use another account.`;
      return refusal("no_role", message, account);
    }
    const { role, organizationId: stated, pins, basis } = access;
    const { identities, accounts, clock } = this.#options;
    const organizationId = stated && (await accounts.organizationNamed(stated))?.id;
    if (organizationId === undefined) {
      const message = `The organization of ${name}, ${printable(String(stated), NAME_CHARACTERS_MAX)}, does not exist here. Ask an operator to create it.`;
      return refusal("no_role", message, account);
    }
    const person = { issuer, subject: claims.sub, name, role, organizationId, pins, basis, signOutUrl };
    await identities.insertIdentity(identityRowOf(issuer, claims.sub, clock(), name));
    if (await this.admits(person)) return { person };
    return refusal("blocked", `An operator has blocked the account ${name}.`, account);
  }

  #clients(): IssuerSettings[] {
    return this.#options.issuers().filter(({ clientId }) => clientId !== undefined);
  }

  async #configurationOf(settings: IssuerSettings, options = { forceRefresh: false }): Promise<Configuration> {
    try {
      return await this.#configurations.forceFetch(settings, options);
    } catch (error) {
      const { issuer } = settings;
      this.#options.log.warn({ issuer, err: error }, "the metadata of an identity provider cannot be read");
      throw unavailable(settings, error);
    }
  }
}

/** Returns the label of an issuer: its name, or its host. */
export function labelOf({ name, issuer }: IssuerSettings): string {
  return name ?? new URL(issuer).host;
}

/** Reads a provider's metadata. The library refuses those of another issuer, but accepts other spellings of its address. */
async function discover(settings: IssuerSettings): Promise<Configuration> {
  const { issuer, clientId = "", clientSecret = "" } = settings;
  const library = await import("openid-client");
  const authentication: ClientAuth = (server, ...rest) => {
    // RFC 6749, section 2.3.1: a server must support the header; OpenID Connect Discovery: absent metadata say so, too.
    const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"];
    const isBasic = methods.includes("client_secret_basic");
    const authenticate = isBasic ? library.ClientSecretBasic(clientSecret) : library.ClientSecretPost(clientSecret);
    authenticate(server, ...rest);
  };
  const onLoopback = issuer.startsWith("http:") ? [library.allowInsecureRequests] : [];
  const configuration = await library.discovery(
    new URL(issuer),
    clientId,
    { [library.clockTolerance]: CLOCK_TOLERANCE_SECONDS },
    authentication,
    { execute: [library.enableNonRepudiationChecks, ...onLoopback], timeout: PROVIDER_TIMEOUT_SECONDS },
  );
  const found = configuration.serverMetadata().issuer;
  if (found === issuer) return configuration;
  throw new Error(`identity.issuers has ${issuer}, and the metadata have ${found}`);
}

/** Derives the values that bind a response of a provider to the browser, the issuer and the time. */
function checksOf(secret: string, issuer: string, expiresAtMs: number) {
  const derive = (use: string) =>
    createHmac("sha256", secret)
      .update(JSON.stringify([use, issuer, expiresAtMs]))
      .digest("base64url");
  return { state: `${expiresAtMs}.${derive("state")}`, nonce: derive("nonce"), verifier: derive("verifier") };
}

/** Checks what the library leaves out, and returns the claims of the ID token. */
function checkedClaims<Claims extends { sub: string; at_hash?: unknown }>(
  { id_token, access_token }: TokenEndpointResponse,
  claims: Claims | undefined,
  { algorithms }: IssuerSettings,
): Claims {
  const alg = decodeProtectedHeader(id_token ?? "").alg ?? "none";
  if (claims === undefined || !algorithms.some((one) => one === alg)) throw new Error(`The ID token has alg ${alg}`);
  // OpenID Connect Core, section 3.1.3.6: the left half of the hash that the algorithm uses.
  const digest = hash(`sha${alg === "EdDSA" ? 512 : alg.slice(-3)}`, access_token, "buffer");
  const half = digest.subarray(0, digest.length / 2).toString("base64url");
  if (claims.at_hash !== undefined && claims.at_hash !== half)
    throw new Error("The ID token is of another access token");
  if (printable(claims.sub, SUBJECT_CHARACTERS_MAX) !== claims.sub) throw new Error("The subject is not valid");
  return claims;
}

/** Returns the address that ends the provider's own session and leads back to the console (RP-Initiated Logout 1.0). */
async function signOutUrlOf(
  configuration: Configuration,
  { id_token = "" }: TokenEndpointResponse,
  redirectUri: string,
): Promise<string | null> {
  if (configuration.serverMetadata().end_session_endpoint === undefined) return null;
  const { buildEndSessionUrl } = await import("openid-client");
  const parameters = new URLSearchParams({ post_logout_redirect_uri: redirectUri });
  if (id_token.length <= HINT_CHARACTERS_MAX) parameters.set("id_token_hint", id_token);
  return buildEndSessionUrl(configuration, parameters).href;
}

const REFUSAL_CODES = { rejected_response: "sign_in_failed", no_role: "no_role", blocked: "account_blocked" } as const;

function refusal(reason: keyof typeof REFUSAL_CODES, message: string, account: string | null = null) {
  const error = new ApiError(REFUSAL_CODES[reason], message);
  const failure: SignInFailure = { reason, ...(account === null ? { token: null } : { account }) };
  return { failure, error };
}

function unavailable(settings: IssuerSettings, cause: unknown): ApiError {
  const message = `${labelOf(settings)} cannot be reached, or answers with an error. Try again, or sign in with a token.`;
  return new ApiError("issuer_unavailable", message, { cause });
}

/** Returns what a person reads when a provider, or the check of its answer, ends their sign-in. */
function refusalText(settings: IssuerSettings, error: unknown): string {
  const label = labelOf(settings);
  const { error: code, error_description: description } = error as { error?: unknown; error_description?: unknown };
  if (code === "access_denied") return `The sign-in was cancelled, or ${label} refused it.`;
  if (typeof code !== "string") return `The answer of ${label} is not valid. Start again.`;
  const text = typeof description === "string" ? `${code}: ${description}` : code;
  return `${label} refused the sign-in: ${printable(text, REASON_CHARACTERS_MAX)}`;
}

/** Returns which claim of an ID token the library refused, and why. The nonce is a secret of a browser. */
function mismatchOf(error: unknown): Record<string, string> {
  let facts = error;
  while (facts instanceof Error) facts = facts.cause;
  if (!isObject(facts) || typeof facts.claim !== "string" || !isObject(facts.claims)) return {};
  const { claim, claims, expected, now } = facts;
  if (claim === "nonce") return { claim };
  const [wanted, actual] = [expected ?? now, claims[claim]].map((value) =>
    printable(JSON.stringify(value) ?? "nothing", REASON_CHARACTERS_MAX),
  );
  return { claim, [expected === undefined ? "now" : "expected"]: wanted ?? "", actual: actual ?? "" };
}

/** Tests whether a provider did not answer, or with a failure of its own. */
function isAway(error: unknown): boolean {
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  if (error instanceof TypeError || code === "OAUTH_TIMEOUT") return true;
  return isObject(cause) && typeof cause.status === "number" && cause.status >= 500;
}
