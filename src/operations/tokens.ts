import { makeTokenRow, type NewSecret } from "../admin/token.ts";
import { SCOPES } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import type { TokenRow, TokenWithBudget } from "../stores/queries/accounts.ts";
import {
  argument,
  command,
  creditsOrNone,
  expiry,
  facts,
  list,
  optional,
  pairs,
  required,
  tableOf,
  text,
  toggle,
  withDefault,
} from "./command.ts";
import {
  type AccountCore,
  allRows,
  checkExpiry,
  checkLimits,
  checkName,
  checkPins,
  found,
  knownOrganization,
  oldestFirst,
  rowRecord,
} from "./core.ts";
import { operation, organizationIn, requireOwn } from "./operation.ts";
import {
  auditedTerms,
  auditedToken,
  capText,
  expectActive,
  makeCap,
  pinsOf,
  pinsText,
  SECRET,
  scopesOf,
  type TokenTerms,
  termsOfBody,
  tokenJson,
  tokenRow,
} from "./token-terms.ts";

export const listTokens = operation({
  route: "GET /tokens",
  permission: "tokens:read",
  summary: "List access tokens, the newest first, without their secrets",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      status: s.Type.Optional(s.TokenStatus),
      search: s.Type.Optional(s.Type.String({ maxLength: 200, description: "Part of the name, an id, or a prefix." })),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Token) },
  async handle({ directory }, { who, query: { organization_id, search = null, status = null }, page }) {
    return directory.tokens({ organizationId: organizationIn(who, organization_id), search, status, ...page });
  },
  commands: [
    command({
      usage: "token list",
      summary: "List the access tokens, the oldest first, without their secrets",
      flags: { organizationId: optional("--org <id>", "only those of this organization", text) },
      async run(services, input) {
        const organizationId = await knownOrganization(services, input.organizationId);
        const rows = await allRows((page) => services.accounts.tokens({ ...page, organizationId }));
        const json = oldestFirst(rows).map(tokenJson);
        const text = tableOf(json, {
          ID: ({ id }) => id,
          ORGANIZATION: ({ organizationId }) => organizationId,
          NAME: ({ name }) => name,
          TOKEN: ({ prefix }) => `${prefix}…`,
          EXPIRES: ({ revokedAt, expiresAt }) => (revokedAt === null ? (expiresAt ?? "never") : `revoked ${revokedAt}`),
          CAP: capText,
          SCOPES: ({ scopes }) => scopes.join(" "),
        });
        return { json, text };
      },
    }),
  ],
});

export const createToken = operation({
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
  async handle(services, { body: { organization_id: organizationId, name, ...terms } }) {
    const { row, token } = await addToken(services, { organizationId, name, ...termsOfBody(terms) });
    return { ...(await found(services.directory.token(row.id))), secret: token };
  },
  commands: [
    command({
      usage: "token create",
      summary: "Create an access token, shown once",
      flags: {
        organizationId: required("--org <id>", "organization that the token belongs to"),
        name: withDefault("--name <name>", "name that identifies it", "unnamed", text),
        scopes: list("--scope <scope...>", `permissions: ${SCOPES.join(", ")} (default: all but console:read)`),
        models: list("--model <id...>", "models that it can call (default: all)"),
        expiresAtMs: optional("--expires <when>", "expiry: 30d, 12h, or a date (default: never)", expiry),
        cap: optional("--cap <credits>", "spending cap in credits (default: none)", creditsOrNone),
        pinned: pairs("--pin <key=value...>", "metadata that its requests always have (default: none)"),
      },
      input: ({ pinned, ...draft }) => ({ ...draft, pinned: pinsOf(pinned) }),
      async run(services, draft) {
        const { row, token } = await addToken(services, draft);
        const { id, scopes } = row;
        const expiresAt = isoTime(row.expiresAtMs);
        const { cap, pinned } = draft;
        const text = facts({
          id,
          token,
          scopes: scopes.join(", "),
          expires: expiresAt ?? "never",
          ...(cap !== null && { cap: `${formatCredits(cap)} credits` }),
          ...(pinned !== null && { pinned: pinsText(pinned) }),
        });
        const json = { id, token, scopes, expiresAt, ...(cap !== null && { cap: creditsFromMicro(cap) }) };
        return { json: { ...json, ...(pinned !== null && { pinned }) }, text };
      },
    }),
  ],
});

export type TokenDraft = Pick<TokenTerms, "name"> & Partial<TokenTerms> & { organizationId: string };

/** Creates a token. Rejects with invalid_value. */
export async function addToken(core: AccountCore, draft: TokenDraft): Promise<NewSecret> {
  const { organizationId, models = null, limits = null, expiresAtMs = null, cap = null, pinned = null } = draft;
  checkName(draft.name);
  const scopes = scopesOf(draft.scopes ?? null);
  checkLimits(limits);
  checkPins(pinned);
  const createdAtMs = core.clock();
  checkExpiry(expiresAtMs, createdAtMs);
  if ((await core.accounts.organization(organizationId)) === undefined) {
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
  await core.accounts.insertToken(made.row, budget, rowRecord(core, "token.create", made.row, { after }));
  return made;
}

export const showToken = operation({
  route: "GET /tokens/:id",
  permission: "tokens:read",
  summary: "Show an access token, without its secret",
  answer: { status: 200, description: "The token.", schema: (s) => s.Token },
  async handle(services, { who, params }) {
    const token = await found(services.directory.token(params.id));
    requireOwn(who, token.organization_id);
    return token;
  },
});

export const changeToken = operation({
  route: "PATCH /tokens/:id",
  permission: "tokens:write",
  summary: "Change an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  body: (s) => s.TokenChange,
  answer: { status: 200, description: "The token as it is now.", schema: (s) => s.Token },
  async handle(services, { params, body }) {
    await updateToken(services, params.id, termsOfBody(body));
    return found(services.directory.token(params.id));
  },
  commands: [
    command({
      usage: "token update <id>",
      summary: "Change an access token; terms without a flag stay as they are",
      flags: {
        id: argument("<id>", text),
        name: optional("--name <name>", "name that identifies it", text),
        scopes: list("--scope <scope...>", `permissions, in place of the present ones: ${SCOPES.join(", ")}`),
        models: list("--model <id...>", "models that it can call, in place of the present ones"),
        allModels: toggle("--all-models", "let it call every model"),
        expiresAtMs: optional("--expires <when>", "expiry: 30d, 12h from now, or a date", expiry),
        noExpiry: toggle("--no-expires", "let it never expire"),
        cap: optional("--cap <credits>", "spending cap in credits; counts all that it has spent", creditsOrNone),
        noCap: toggle("--no-cap", "remove its spending cap"),
        pins: pairs("--pin <key=value...>", "metadata that its requests always have, in place of the present one"),
        noPins: toggle("--no-pin", "remove its pinned metadata"),
      },
      input({ id, allModels, noExpiry, noCap, pins, noPins, ...terms }) {
        if (allModels && terms.models !== null) {
          throw new OperatorError("--model and --all-models exclude each other.");
        }
        const change: Partial<TokenTerms> = {
          ...Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== null)),
          ...(allModels && { models: null }),
          ...(noExpiry && { expiresAtMs: null }),
          ...(noCap && { cap: null }),
          ...((pins !== null || noPins) && { pinned: pinsOf(pins) }),
        };
        if (Object.keys(change).length > 0) return { id, change };
        throw new OperatorError("Nothing to change: name at least one term.");
      },
      async run(services, { id, change }) {
        const json = tokenJson(await updateToken(services, id, change));
        const text = facts({
          id,
          name: json.name,
          scopes: json.scopes.join(", "),
          models: json.models?.join(", ") ?? "all",
          expires: json.expiresAt ?? "never",
          cap: capText(json),
          pinned: pinsText(json.pinned),
        });
        return { json, text };
      },
    }),
  ],
});

/**
 * Changes terms of a token; absent ones stay unchanged, so that concurrent changes of different terms are all kept. A cap
 * counts what the token has spent since it was created: below that, it refuses new requests. Rejects with an ApiError.
 */
export async function updateToken(
  core: AccountCore,
  id: string,
  { scopes, ...change }: Partial<TokenTerms>,
): Promise<TokenWithBudget> {
  if (change.name !== undefined) checkName(change.name);
  checkLimits(change.limits ?? null);
  checkPins(change.pinned ?? null);
  checkExpiry(change.expiresAtMs ?? null, core.clock());
  const wanted = { ...change, ...(scopes !== undefined && { scopes: scopesOf(scopes) }) };
  const { cap, ...others } = wanted;
  for (;;) {
    const old = await tokenRow(core, id);
    expectActive(core, old, "changed");
    const terms = { ...old, cap: old.budget?.cap ?? null };
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
  async handle(services, { params }) {
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

/** Revokes a token at once. A repetition returns the first revocation. Rejects with not_found. */
export async function endToken(core: AccountCore, id: string): Promise<{ row: TokenRow; repeated: boolean }> {
  const old = await tokenRow(core, id);
  if (old.revokedAtMs !== null) return { row: old, repeated: true };
  const record = rowRecord(core, "token.revoke", old, { before: auditedToken(old) });
  const isRevoked = await core.accounts.revokeToken(id, core.clock(), record);
  return { row: await tokenRow(core, id), repeated: !isRevoked };
}
