import { makeTokenRow } from "../admin/token.ts";
import { SCOPES } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import type { TokenRow, TokenWithBudget } from "../stores/queries/accounts.ts";
import {
  argument,
  command,
  creditsOrNone,
  expiry,
  list,
  optional,
  pairs,
  required,
  text,
  toggle,
  withDefault,
} from "./command.ts";
import {
  type AccountCore,
  changesIn,
  checkLimits,
  checkModels,
  checkName,
  checkPins,
  closedOrganization,
  found,
  rowRecord,
} from "./core.ts";
import { operation, organizationIn, requireOwn, sharedOperation, timeOf } from "./operation.ts";
import { boundsOf, boundTerms, creatorIn, type OwnBounds, requireToken } from "./token-bounds.ts";
import {
  auditedTerms,
  auditedToken,
  capText,
  expectActive,
  makeCap,
  pinsOf,
  requireSecret,
  SECRET,
  scopesOf,
  type TokenTerms,
  termsOfBody,
  tokenJson,
  tokenRow,
  tokenText,
} from "./token-terms.ts";

export const listTokens = sharedOperation({
  route: "GET /tokens",
  permission: "tokens:read",
  summary: "List access tokens, the newest first, without their secrets",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      status: s.Type.Optional(s.TokenStatus),
      expires_before: s.Type.Optional(s.Time),
      search: s.Type.Optional(s.Type.String({ maxLength: 200, description: "Part of the name, an id, or a prefix." })),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Token) },
  async handle({ directory }, { who, query: { organization_id, search = null, status = null, expires_before }, page }) {
    const filter = { organizationId: organizationIn(who, organization_id), createdBy: creatorIn(who), search, status };
    return directory.tokens({ ...filter, expiresBeforeMs: timeOf("expires_before", expires_before), ...page });
  },
  commands: (make) => [
    make.list({
      usage: "token list",
      summary: "List the access tokens, the oldest first, without their secrets",
      flags: { organization_id: optional("--org <id>", "only those of this organization", text) },
      isOldestFirst: true,
      json: tokenJson,
      columns: {
        ID: ({ id }) => id,
        ORGANIZATION: ({ organization_id }) => organization_id,
        NAME: ({ name }) => name,
        TOKEN: ({ prefix }) => `${prefix}…`,
        EXPIRES: ({ revoked_at, expires_at }) =>
          revoked_at === null ? (expires_at ?? "never") : `revoked ${revoked_at}`,
        CAP: capText,
        SCOPES: ({ scopes }) => scopes.join(" "),
      },
    }),
  ],
});

export const createToken = sharedOperation({
  route: "POST /tokens",
  permission: "tokens:write",
  summary: "Create an access token; only this response contains its secret",
  body: (s) => s.NewToken,
  answer: {
    status: 201,
    description: "The token with its secret.",
    schema: (s) => s.TokenWithSecret,
    secret: SECRET,
  },
  async handle(core, { who, body: { organization_id: organizationId, name, ...terms } }) {
    if (who !== null) requireOwn(who, organizationId);
    checkModels(core, "models", terms.models ?? [], { takesBeginnings: false });
    const draft = { organizationId, name, ...termsOfBody(core, terms) };
    const { row, token } = await addToken(core, draft, await boundsOf(core, who));
    return { ...(await found(core.directory.token(row.id))), secret: token };
  },
  commands: (make) => [
    make.command({
      usage: "token create",
      summary: "Create an access token, shown once",
      flags: {
        organization_id: required("--org <id>", "organization that the token belongs to"),
        name: withDefault("--name <name>", "name that identifies it", "unnamed", text),
        scopes: list("--scope <scope...>", `permissions: ${SCOPES.join(", ")} (default: all but console:read)`),
        models: list("--model <id...>", "models that it can call (default: all)"),
        expires_at: optional("--expires <when>", "expiry: 30d, 12h, or a date (default: never)", expiry),
        cap: optional("--cap <credits>", "spending cap in credits (default: none)", creditsOrNone),
        pinned: pairs("--pin <key=value...>", "metadata that its requests always have (default: none)"),
      },
      call: ({ pinned, ...body }) => ({ body: { ...body, pinned: pinsOf(pinned) } }),
      json: ({ id, secret, scopes, expires_at, cap, pinned }) => ({
        ...{ id, token: secret, scopes, expiresAt: expires_at },
        ...(cap !== null && { cap: cap.amount }),
        ...(pinned !== null && { pinned }),
      }),
      text: tokenText,
    }),
  ],
});

export type TokenDraft = Pick<TokenTerms, "name"> & Partial<TokenTerms> & { organizationId: string };

/** Creates a token, within the bounds of the person who creates it. Rejects with invalid_value or insufficient_role. */
export async function addToken(core: AccountCore, stated: TokenDraft, bounds: OwnBounds | null = null) {
  const draft = bounds === null ? stated : { ...stated, ...boundTerms(bounds, stated) };
  const { organizationId, models = null, limits = null, expiresAtMs = null, cap = null, pinned = null } = draft;
  checkName(draft.name);
  const scopes = scopesOf(draft.scopes ?? null);
  checkLimits(limits);
  // Those of the person who creates it, and of their claims, may be more.
  checkPins(stated.pinned ?? null);
  const createdAtMs = core.clock();
  const organization = await core.accounts.organization(organizationId);
  if (organization?.status === "closed") throw closedOrganization(organizationId);
  if (organization === undefined) {
    const command = new UnknownIdError("organization", organizationId, "org list");
    const message = "There is no organization with this id.";
    throw new ApiError("invalid_value", message, { param: "organization_id", command });
  }
  const made = makeTokenRow(core.random, {
    ...{ ...draft, scopes, models, limits, createdAtMs, expiresAtMs, pinned },
    createdBy: core.actor.id,
  });
  const after = { ...auditedToken(made.row), ...auditedTerms({ cap }, ["cap"]) };
  const budget = cap === null ? null : makeCap(core, made.row, cap);
  const record = rowRecord(core, "token.create", made.row, { after });
  if (await core.accounts.insertToken(made.row, budget, record, bounds?.countMax)) return made;
  const message = `You have ${bounds?.countMax} active tokens in this organization, which is the maximum. Revoke one first.`;
  throw new ApiError("insufficient_role", message);
}

export const showToken = operation({
  route: "GET /tokens/:id",
  permission: "tokens:read",
  summary: "Show an access token, without its secret",
  answer: { status: 200, description: "The token.", schema: (s) => s.Token },
  async handle(services, { who, params }) {
    requireToken(who, await tokenRow(services, params.id), "seen");
    return found(services.directory.token(params.id));
  },
});

export const changeToken = sharedOperation({
  route: "PATCH /tokens/:id",
  permission: "tokens:write",
  summary: "Change an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  body: (s) => s.TokenChange,
  answer: { status: 200, description: "The token as it is now.", schema: (s) => s.Token },
  async handle(core, { who, params, body }) {
    requireToken(who, await tokenRow(core, params.id), "changed");
    checkModels(core, "models", body.models ?? [], { takesBeginnings: false });
    await updateToken(core, params.id, termsOfBody(core, body), await boundsOf(core, who));
    return found(core.directory.token(params.id));
  },
  commands: (make) => [
    make.command({
      usage: "token update <id>",
      summary: "Change an access token; terms without a flag stay as they are",
      flags: {
        id: argument("<id>", text),
        name: optional("--name <name>", "name that identifies it", text),
        scopes: list("--scope <scope...>", `permissions, in place of the present ones: ${SCOPES.join(", ")}`),
        models: list("--model <id...>", "models that it can call, in place of the present ones"),
        allModels: toggle("--all-models", "let it call every model"),
        expires_at: optional("--expires <when>", "expiry: 30d, 12h from now, or a date", expiry),
        noExpiry: toggle("--no-expires", "let it never expire"),
        cap: optional("--cap <credits>", "spending cap in credits; counts all that it has spent", creditsOrNone),
        noCap: toggle("--no-cap", "remove its spending cap"),
        pins: pairs("--pin <key=value...>", "metadata that its requests always have, in place of the present one"),
        noPins: toggle("--no-pin", "remove its pinned metadata"),
      },
      call: ({ id, allModels, noExpiry, noCap, pins, noPins, ...terms }) => ({
        params: { id },
        body: changesIn(
          { ...terms, pinned: pinsOf(pins) },
          { models: allModels, expires_at: noExpiry, cap: noCap, pinned: noPins },
        ),
      }),
      json: tokenJson,
      text: tokenText,
    }),
  ],
});

/**
 * Changes terms of a token; absent ones stay, so that concurrent changes of different terms are all kept. With bounds, all terms
 * must be within them afterwards. A cap below what was spent refuses new requests. Rejects with an ApiError.
 */
export async function updateToken(
  core: AccountCore,
  id: string,
  { scopes, ...change }: Partial<TokenTerms>,
  bounds: OwnBounds | null = null,
): Promise<TokenWithBudget> {
  if (change.name !== undefined) checkName(change.name);
  checkLimits(change.limits ?? null);
  checkPins(change.pinned ?? null);
  // The bounds may allow some of the default ones only.
  const isLeftOpen = scopes === null && bounds !== null;
  const stated = { ...change, ...(scopes !== undefined && { scopes: isLeftOpen ? null : scopesOf(scopes) }) };
  for (;;) {
    const old = await tokenRow(core, id);
    // That of an identity can be given another expiry: nobody could create it again.
    if (old.kind === "secret") expectActive(core, old, "changed");
    const terms = { ...old, cap: old.budget?.cap ?? null };
    const wanted = bounds === null ? stated : { ...stated, ...boundTerms(bounds, stated, terms) };
    const { cap, ...others } = wanted;
    const fields = (Object.keys(wanted) as (keyof typeof wanted)[]).filter((field) => {
      const [present, next] = [terms, wanted].map((of) => JSON.stringify(auditedTerms(of, [field])));
      return present !== next;
    });
    if (fields.length === 0) return old;
    const audited = { before: auditedTerms(terms, fields), after: auditedTerms(wanted, fields) };
    const values = Object.fromEntries(fields.filter((field) => field !== "cap").map((field) => [field, others[field]]));
    const isCapChanged = cap !== undefined && fields.includes("cap");
    const newCap = isCapChanged && { cap: cap === null ? null : makeCap(core, old, cap) };
    const record = rowRecord(core, "token.change", old, audited);
    if (await core.accounts.changeToken(old, { ...values, ...newCap }, record)) return tokenRow(core, id);
  }
}

export const revokeToken = operation({
  route: "POST /tokens/:id/revoke",
  permission: "tokens:write",
  summary: "Revoke an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  answer: { status: 200, description: "The token as it is now.", schema: (s) => s.Token },
  async handle(services, { who, params }) {
    requireToken(who, await tokenRow(services, params.id), "revoked");
    await endToken(services, params.id);
    return found(services.directory.token(params.id));
  },
  commands: [
    command({
      usage: "token revoke <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const { row, repeated } = await endToken(services, id);
        const revokedAt = isoTime(row.revokedAtMs);
        const text = repeated ? `${id} was revoked before, at ${revokedAt}.` : `${id} is revoked.`;
        return { json: { id, revokedAt, repeated }, text };
      },
    }),
  ],
});

/** Revokes a token at once. A repetition returns the first revocation. Rejects with not_found, or invalid_value for that of an identity. */
export async function endToken(core: AccountCore, id: string): Promise<{ row: TokenRow; repeated: boolean }> {
  const old = await tokenRow(core, id);
  requireSecret(old, "it would be revoked forever. An operator can block the identity, and unblock it");
  if (old.revokedAtMs !== null) return { row: old, repeated: true };
  const record = rowRecord(core, "token.revoke", old, { before: auditedToken(old) });
  const isRevoked = await core.accounts.revokeToken(id, core.clock(), record);
  return { row: await tokenRow(core, id), repeated: !isRevoked };
}
