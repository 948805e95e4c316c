import { Accounts } from "../admin/accounts.ts";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { type AdjustmentRefusal, CreditAdjustments, PLAYGROUND_HOLDS_NO_CREDITS } from "../admin/credit-adjustments.ts";
import { loadStoreSettings, type StoreSettings } from "../config/sources.ts";
import type { BalanceRow } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { openStore } from "../stores/open.ts";
import { describePlace, expectKind, type StorePlace } from "../stores/place.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Store } from "../stores/store.ts";
import { type CommonFlags, type Terminal, UnknownIdError } from "./command.ts";

/** The store and the use cases that the commands on organizations, tokens and credits call. */
export interface Workspace {
  config: StoreSettings;
  store: Store;
  accounts: Accounts;
  creditAdjustments: CreditAdjustments;
}

/**
 * Returns where the flags and the configuration say that the store is. Rejects with OperatorError if the data directory is
 * that of another kind of store.
 */
export async function storeSettings(flags: CommonFlags): Promise<StoreSettings> {
  const settings = await loadStoreSettings({ flags });
  await expectKind(settings);
  return settings;
}

/** Prints where the store of a command is, on standard error, so that a command in a wrong place is noticed. */
export async function printStore(terminal: Terminal, place: StorePlace, isNew = false): Promise<void> {
  terminal.error(`Store: ${await describePlace(place)}${isNew ? ", created by this command" : ""}`);
}

/**
 * Opens the store that the flags and the configuration name, with or without a running service. Only with `creates`
 * does it make a store that does not exist: in a wrong folder, all other commands change nothing.
 */
export async function withWorkspace<T>(
  terminal: Terminal,
  flags: CommonFlags,
  work: (workspace: Workspace) => Promise<T>,
  { creates = false }: { creates?: boolean } = {},
): Promise<T> {
  const config = await storeSettings(flags);
  const { clock, random } = terminal;
  const store = await openStore({ ...config, role: "command", creates, clock });
  try {
    await printStore(terminal, config, store.isNew);
    const options = { clock, random, newId: () => uuidV7(clock()) };
    const accounts = new Accounts({ ...options, rows: store.accounts, actor: COMMAND_ACTOR });
    const creditAdjustments = new CreditAdjustments({ ...options, ...store, bookings: bookingsIn(store.books) });
    return await work({ config, store, accounts, creditAdjustments });
  } finally {
    await store.close();
  }
}

/** Books each transition at once, in a transaction of its own. */
function bookingsIn(books: Books): Pick<Ledger, "grant" | "revoke" | "credit"> {
  return {
    grant: async (request) => (await books.apply("durable", [{ kind: "grant", ...request }]))[0],
    revoke: async (request) => (await books.apply("durable", [{ kind: "revoke", ...request }]))[0],
    credit: async (request) => (await books.apply("durable", [{ kind: "credit", ...request }]))[0],
  };
}

/** Reads a balance after applying every grant that has taken effect or expired. */
export async function freshBalance(
  { store }: Workspace,
  { clock }: Terminal,
  organizationId: string,
): Promise<BalanceRow> {
  const balance = await store.books.balance(organizationId);
  if (balance === undefined) throw unknownOrganization(organizationId);
  if (balance.nextChangeAtMs === null || balance.nextChangeAtMs > clock()) return balance;
  const [outcome] = await store.books.apply("durable", [{ kind: "refresh", organizationId }]);
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  return outcome.balance;
}

/** Returns the outcome of an adjustment. Throws OperatorError for the refusals that every kind of adjustment has. */
export function acceptedOf<Outcome extends { outcome: string }>(
  organizationId: string,
  outcome: Outcome | AdjustmentRefusal,
): Exclude<Outcome, AdjustmentRefusal> {
  const { outcome: name } = outcome;
  if (name === "unknown_organization") throw unknownOrganization(organizationId);
  if (name === "playground") throw new OperatorError(PLAYGROUND_HOLDS_NO_CREDITS);
  if (name === "reference_mismatch") throw new OperatorError((outcome as { message: string }).message);
  return outcome as Exclude<Outcome, AdjustmentRefusal>;
}

/** Returns the organization that `--org` names; null without the flag. Rejects with UnknownIdError. */
export async function organizationFlag(accounts: Accounts, id: string | undefined): Promise<string | null> {
  if (id !== undefined && (await accounts.organization(id)) === undefined) throw unknownOrganization(id);
  return id ?? null;
}

/** Position and length of a page of rows, in the order of their ids. */
export interface PageOfRows {
  /** Id of the last row of the previous page. */
  after: string | null;
  limit: number;
}

const PAGE_ROWS = 500;

/** Reads all rows, page by page, so that no list has to fit into memory. */
export async function* allRows<Row extends { id: string }>(
  read: (page: PageOfRows) => Promise<Row[]>,
): AsyncGenerator<Row> {
  let page: Row[] = [];
  do {
    page = await read({ after: page.at(-1)?.id ?? null, limit: PAGE_ROWS });
    yield* page;
  } while (page.length === PAGE_ROWS);
}

export function unknownOrganization(id: string): OperatorError {
  return new UnknownIdError("organization", id, "org list");
}
