import { type Actor, type AuditTime, auditRow, type Change } from "../admin/audit.ts";
import type { Directory, Page, PageRequest } from "../admin/directory.ts";
import type { IdentitiesOptions } from "../admin/identities.ts";
import type { RandomBytes } from "../admin/token.ts";
import { type LimitSettings, PIN_KEY, PINS_MAX, type Pins } from "../api/principal.ts";
import { LINE, LINE_WORDS } from "../api/wording.ts";
import type { AuditRow } from "../credits/audit.ts";
import { isModel } from "../credits/budgets.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import type { BookCredits } from "../ledger/commit-queue.ts";
import type { Offers } from "../payments/payments.ts";
import type { StripeApi } from "../payments/stripe.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import type { Store } from "../stores/store.ts";

/** Returns the rows of a store that operations read and write. */
export function coreRows({ accounts, admin, allowances, budgets, erasure, events, ...others }: Store) {
  const { identities: identityRows, monthlyStatements, payments, topUps, vouchers } = others;
  return {
    ...{ accounts, admin, allowances, budgets, erasure, events },
    ...{ identityRows, monthlyStatements, payments, topUps, vouchers },
  };
}

/** Services that operations use in a running service and in a command. */
export interface Core extends AuditTime, ReturnType<typeof coreRows> {
  directory: Directory;
  /** Returns why a receiver is refused; undefined if it is not. */
  receiverFault(receiver: Pick<ReceiverRow, "organizationId" | "format" | "target">): Promise<string | undefined>;
  /** Returns the ids of the models that the service offers; null in a command, which does not know them. */
  modelIds: (() => string[]) | null;
  priceLists(): Promise<readonly string[]>;
  /** Returns the checkouts of Stripe; undefined if payments are not configured. */
  checkouts(): Promise<Checkouts | undefined>;
  /** Returns the months for which requests are stored; undefined: for ever. */
  requestMonths(): Promise<number | undefined>;
  issuers(): Promise<ReturnType<IdentitiesOptions["issuers"]>>;
  /** Books one transition: the ledger of a running service, or the books of a store. */
  book: BookCredits;
  random: RandomBytes;
  actor: Actor;
}

export type Checkouts = { offers: Offers; api: Pick<StripeApi, "createSession" | "createSetup"> };

export type AccountCore = Pick<Core, "accounts" | "actor" | keyof AuditTime | "random">;
export type CreditCore = AccountCore & Pick<Core, "allowances" | "book">;

/** Returns the audit record of a change of a row of an organization, or of the whole service (null). */
export function rowRecord(
  { actor, ...time }: AccountCore,
  action: string,
  { organizationId, id: subjectId }: { organizationId: string | null; id: string },
  change: Pick<Change, "before" | "after"> = {},
): AuditRow {
  return auditRow(actor, { action, organizationId, subjectId, ...change }, time);
}

const NAME = new RegExp(LINE, "u");
const PAGE_ROWS = 500;

/** Returns the error for a resource that does not exist, or belongs to another organization. */
export function notFound(command?: UnknownIdError): ApiError {
  const message = "The resource does not exist or you do not have access to it.";
  return new ApiError("not_found", message, { command });
}

export function unknownOrganization(id: string): ApiError {
  return notFound(new UnknownIdError("organization", id, "org list"));
}

/** Resolves with a resource. Rejects with not_found if there is none; a command also names the command that lists the ids. */
export async function found<Resource>(
  lookup: Promise<Resource | undefined>,
  named?: { kind: string; id: string; listedBy?: string },
): Promise<Resource> {
  const resource = await lookup;
  if (resource !== undefined) return resource;
  throw notFound(named && new UnknownIdError(named.kind, named.id, named.listedBy ?? `${named.kind} list`));
}

/** Returns the organization that a command names; null if it names none. Rejects with not_found. */
export async function knownOrganization({ accounts }: Pick<Core, "accounts">, id: string | null) {
  if (id !== null && (await accounts.organization(id)) === undefined) throw unknownOrganization(id);
  return id;
}

/** Returns the error for a closed organization, which gets nothing new and stays closed. */
export function closedOrganization(id: string): ApiError {
  return new ApiError("invalid_value", `The organization ${id} is closed for good.`);
}

/** Throws invalid_value for a name that is empty, too long or not on one line. */
export function checkName(name: string): void {
  if (NAME.test(name)) return;
  throw invalidValue("name", shortText(name), LINE_WORDS);
}

/** Throws invalid_value for a limit that is not an integer above 0. */
export function checkLimits(limits: Partial<LimitSettings> | null): void {
  for (const [name, value] of Object.entries(limits ?? {})) {
    if (!Number.isSafeInteger(value) || value < 1) throw invalidValue(name, `${value}`, "an integer, 1 or more");
  }
}

/** Throws invalid_value for a model that the service does not offer; where beginnings are not taken, also for an alias. */
export function checkModels(
  { modelIds }: Pick<Core, "modelIds">,
  param: string,
  models: readonly string[],
  { takesBeginnings = true } = {},
): void {
  const ids = modelIds?.() ?? null;
  const isOffered = (model: string) =>
    ids === null || ids.some((id) => (takesBeginnings ? isModel(model, id) : model === id));
  const index = models.findIndex((model) => !isOffered(model));
  if (index < 0) return;
  const allowed = takesBeginnings ? "a model of the service, or a beginning and *" : "the id of a model of the service";
  throw invalidValue(`${param}[${index}]`, shortText(models[index] ?? ""), allowed);
}

/** Throws invalid_value for metadata that a token cannot pin. */
export function checkPins(pinned: Pins | null): void {
  const keys = Object.keys(pinned ?? {});
  const wrong = keys.find((key) => !PIN_KEY.test(key));
  const allowed = "a key of 1 to 64 characters, and not requested_model";
  if (wrong !== undefined) throw invalidValue("pinned", shortText(wrong), allowed);
  if (keys.length > PINS_MAX) throw invalidValue("pinned", `${keys.length} keys`, `${PINS_MAX} or fewer`);
}

export function invalidValue(param: string, found: string, expected: string): ApiError {
  return new ApiError("invalid_value", `${param} is ${found}, but must be ${expected}.`, { param });
}

export function shortText(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

/** Returns the values that are defined. */
export function defined<Values extends object>(
  values: Values,
): { [Name in keyof Values]?: Exclude<Values[Name], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

/** Returns the values that are not null: those that flags of a command state. */
export function stated<Values extends object>(
  values: Values,
): { [Name in keyof Values]?: Exclude<Values[Name], null> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null)) as never;
}

/** Returns the terms that flags state, and null for those that they remove. Throws OperatorError for none, or for both of a term. */
export function changesIn(terms: Record<string, unknown>, isRemoved: Record<string, boolean>): Record<string, unknown> {
  const removed = Object.keys(isRemoved).filter((name) => isRemoved[name]);
  const twice = removed.find((name) => terms[name] !== null);
  if (twice !== undefined) throw new OperatorError(`${twice}: a new value and its removal exclude each other.`);
  const changes = { ...stated(terms), ...Object.fromEntries(removed.map((name) => [name, null])) };
  if (Object.keys(changes).length > 0) return changes;
  throw new OperatorError("Nothing to change: name at least one term.");
}

/** Reads all pages of a list, the newest entries first. */
export async function allPages<Entry>(read: (page: PageRequest) => Promise<Page<Entry>>): Promise<Entry[]> {
  const entries: Entry[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<Entry> = await read({ cursor, limit: PAGE_ROWS });
    entries.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return entries;
}

/** Returns a list that is not paged. */
export function wholeList<Entry>(data: Entry[]): Page<Entry> {
  return { object: "list", data, next_cursor: null };
}
