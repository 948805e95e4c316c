import { SCOPES } from "../api/principal.ts";
import { OperatorError } from "../errors.ts";
import type { TokenWithBudget } from "../stores/queries/accounts.ts";
import { argument, command, creditsOrNone, expiry, facts, list, optional, pairs, text, toggle } from "./command.ts";
import { type AccountCore, checkExpiry, checkLimits, checkName, checkPins, found, rowRecord } from "./core.ts";
import { operation } from "./operation.ts";
import {
  auditedTerms,
  capText,
  expectActive,
  makeCap,
  pinsOf,
  pinsText,
  scopesOf,
  type TokenTerms,
  termsOfBody,
  tokenJson,
  tokenRow,
} from "./token-terms.ts";

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
