import { makeTokenRow, type NewSecret } from "../admin/token.ts";
import { SCOPES } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import {
  command,
  creditsOrNone,
  expiry,
  facts,
  list,
  optional,
  pairs,
  required,
  text,
  withDefault,
} from "./command.ts";
import { type AccountCore, checkExpiry, checkLimits, checkName, checkPins, found, rowRecord } from "./core.ts";
import { operation } from "./operation.ts";
import {
  auditedTerms,
  auditedToken,
  makeCap,
  pinsOf,
  pinsText,
  SECRET,
  scopesOf,
  type TokenTerms,
  termsOfBody,
} from "./token-terms.ts";

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
