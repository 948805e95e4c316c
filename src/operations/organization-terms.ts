import { targetFault } from "../admin/receivers.ts";
import type { NewOrganization, Organization } from "../api/admin/organization.ts";
import { ALIAS, ALIASES_MAX, CONTACTS_MAX, EXTERNAL_ID_PATTERN } from "../api/principal.ts";
import { isModel } from "../credits/budgets.ts";
import { OperatorError } from "../errors.ts";
import type { OrganizationTerms } from "../stores/queries/accounts.ts";
import { argument, facts, line, list, optional, pairs, text, toggle, type ValuesOf } from "./command.ts";
import { type Core, changesIn, checkModels, defined, invalidValue, shortText } from "./core.ts";
import { limitSettingsOf } from "./operation.ts";

export const EXTERNAL_ID = optional("--external-id <id>", "its id in another system, unique here", (given, name) => {
  if (EXTERNAL_ID_PATTERN.test(given)) return given;
  throw new OperatorError(`${name} is ${shortText(given)}, but must be 1 to 200 ASCII characters without spaces.`);
});
export const PRICE_LIST = optional(
  "--price-list <name>",
  "list of the configuration's priceLists with its prices",
  text,
);

/** Converts the terms of a body; `present` are those that are stored. Rejects with invalid_value. */
export async function termsOf(
  core: Pick<Core, "modelIds" | "priceLists">,
  { limits, models, aliases, price_list: priceList, external_id: externalId, contacts, note }: Partial<NewOrganization>,
  present?: { models?: readonly string[] | null },
): Promise<Partial<OrganizationTerms>> {
  checkModels(core, "models", models ?? []);
  checkAliases(core, aliases ?? {}, models === undefined ? present?.models : models);
  checkContacts(contacts ?? []);
  const names = typeof priceList === "string" ? await core.priceLists() : [];
  if (typeof priceList === "string" && !names.includes(priceList)) {
    const allowed = names.length === 0 ? "absent: the configuration has no priceLists" : `one of: ${names.join(", ")}`;
    throw invalidValue("price_list", shortText(priceList), allowed);
  }
  const terms = defined({ models, aliases, priceList, externalId, contacts, note });
  return limits === undefined ? terms : { ...terms, limits: limitSettingsOf(limits) };
}

/** `models` are those that the organization may use. */
function checkAliases(
  { modelIds }: Pick<Core, "modelIds">,
  aliases: Readonly<Record<string, string>>,
  models: readonly string[] | null = null,
): void {
  const ids = modelIds?.();
  const names = Object.keys(aliases);
  if (names.length > ALIASES_MAX) throw invalidValue("aliases", `${names.length} names`, `${ALIASES_MAX} or fewer`);
  for (const [alias, id] of Object.entries(aliases)) {
    const key = `aliases.${alias}`;
    if (!ALIAS.test(alias) || ids?.includes(alias)) {
      throw invalidValue("aliases", shortText(alias), "names without spaces and *, which no model has as its id");
    }
    if (ids?.includes(id) === false) throw invalidValue(key, shortText(id), "the id of a model of the service");
    if (models?.some((pattern) => isModel(pattern, id)) === false) {
      throw invalidValue(key, shortText(id), "one of the models of the organization");
    }
  }
}

function checkContacts(contacts: readonly string[]): void {
  if (contacts.length > CONTACTS_MAX) {
    throw invalidValue("contacts", `a list of ${contacts.length}`, `a list of at most ${CONTACTS_MAX}`);
  }
  for (const [index, target] of contacts.entries()) {
    if (targetFault({ organizationId: null, format: "mail", target }, () => false, false) === undefined) continue;
    throw invalidValue(`contacts[${index}]`, shortText(target), "a mail address such as ada@example.com");
  }
}

/** Throws invalid_value for the external id of another organization. */
export function refuseExternalId(externalId: string | null = null): never {
  throw invalidValue("external_id", shortText(externalId ?? ""), "one that no other organization has");
}

const UPDATE_FLAGS = {
  id: argument("<id>", text),
  name: optional("--name <name>", "its name", text),
  models: list(
    "--model <id...>",
    "models that its tokens can call, in place of the present ones; prefix*: all that begin so",
  ),
  allModels: toggle("--all-models", "let it use every model"),
  aliases: pairs("--alias <name=model...>", "names of models that only it can use, in place of the present ones"),
  noAliases: toggle("--no-aliases", "remove its aliases"),
  price_list: PRICE_LIST,
  noPriceList: toggle("--no-price-list", "give it the prices of the models"),
  external_id: EXTERNAL_ID,
  noExternalId: toggle("--no-external-id", "remove its external id"),
  contacts: list("--contact <address...>", "mail addresses, in place of the present ones"),
  note: optional("--note <text>", "note that only operators and auditors read", line),
  noNote: toggle("--no-note", "remove its note"),
};

/** The command that changes an organization's name and terms. */
export const UPDATE = {
  usage: "org update <id>",
  summary: "Change an organization; terms without a flag stay as they are",
  flags: UPDATE_FLAGS,
  call({ id, ...flags }: ValuesOf<typeof UPDATE_FLAGS>) {
    const { allModels, noAliases, noPriceList, noExternalId, noNote, aliases, ...terms } = flags;
    const isRemoved = { models: allModels, aliases: noAliases, price_list: noPriceList };
    const stated = { ...terms, aliases: aliases && Object.fromEntries(aliases) };
    return { params: { id }, body: changesIn(stated, { ...isRemoved, external_id: noExternalId, note: noNote }) };
  },
  text: ({ id, name, models, aliases, price_list, external_id, contacts, note }: Organization) =>
    facts({
      ...{ id, name, models: models?.join(", ") ?? "all" },
      aliases:
        Object.entries(aliases ?? {})
          .map(([alias, model]) => `${alias} is ${model}`)
          .join(", ") || "none",
      ...{ "price list": price_list ?? "none" },
      ...{ "external id": external_id ?? "none", contacts: contacts?.join(", ") ?? "none", note: note ?? "none" },
    }),
};
