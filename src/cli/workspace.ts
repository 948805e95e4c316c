import { COMMAND_ACTOR } from "../admin/audit.ts";
import { directoryOver } from "../admin/directory.ts";
import { targetFault } from "../admin/receivers.ts";
import { loadStoreSettings, type StoreSettings } from "../config/sources.ts";
import type { BalanceRow } from "../credits/books.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { BookCredits } from "../ledger/commit-queue.ts";
import type { CommandServices } from "../operations/command.ts";
import { type Core, coreRows, unknownOrganization } from "../operations/core.ts";
import { type OpenedStore, type OpenStoreOptions, openStore } from "../stores/open.ts";
import { describePlace, expectKind, type StorePlace } from "../stores/place.ts";
import type { Books } from "../stores/queries/books.ts";
import type { CommonFlags, Terminal } from "./command.ts";

export interface Workspace extends CommandServices {
  config: StoreSettings;
  terminal: Terminal;
  flags: CommonFlags;
}

/** Returns where the store is. Rejects with OperatorError if the data directory is that of another kind of store. */
export async function storeSettings(flags: CommonFlags): Promise<StoreSettings> {
  const settings = await loadStoreSettings({ flags });
  await expectKind(settings);
  return settings;
}

/** Opens a store for a command. Rejects with OperatorError if there is none, unless `creates`, or if it is of another version. */
export function openCommandStore(
  { clock }: Terminal,
  place: Pick<OpenStoreOptions, "database" | "dataDir" | "isCopyTarget">,
  creates = false,
): Promise<OpenedStore> {
  return openStore({ ...place, role: "command", creates, clock });
}

/** Prints where the store of a command is, on standard error, so that a command in a wrong place is noticed. */
export async function printStore(terminal: Terminal, place: StorePlace, isNew = false): Promise<void> {
  terminal.error(`Store: ${await describePlace(place)}${isNew ? ", created by this command" : ""}`);
}

/** Opens the store of the flags and the configuration. Only with `creates` it makes one: most commands change no wrong folder. */
export async function withWorkspace<T>(
  terminal: Terminal,
  flags: CommonFlags,
  work: (workspace: Workspace) => Promise<T>,
  creates = false,
): Promise<T> {
  const config = await storeSettings(flags);
  const { clock, random } = terminal;
  await using store = await openCommandStore(terminal, config, creates);
  await printStore(terminal, config, store.isNew);
  const { books } = store;
  const receiverFault: Core["receiverFault"] = async (receiver) => {
    const { allowPrivateAddresses } = (await import("../config.ts")).loadGroup({ flags }, "warnings");
    const { isPublicHost } = await import("../api/chat/image-address.ts");
    return targetFault(receiver, isPublicHost, allowPrivateAddresses);
  };
  const directory = directoryOver({ rows: store.directory, clock });
  const book: BookCredits = async (transition) => (await books.apply("durable", [transition]))[0];
  const issuers = async () => (await import("../config.ts")).loadGroup({ flags }, "identity").issuers;
  let names: Promise<string[]> | undefined;
  const priceLists = () => {
    names ??= import("../config.ts").then(({ loadGroup }) => Object.keys(loadGroup({ flags }, "priceLists") ?? {}));
    return names;
  };
  const checkouts = async () =>
    (await import("../app/payments.ts")).createCheckouts((await import("../config.ts")).loadConfig({ flags }));
  const requestMonths = async () => (await import("../config.ts")).loadGroup({ flags }, "retention").requestMonths;
  const configured = { receiverFault, modelIds: null, priceLists, requestMonths, issuers, checkouts };
  const core = { ...coreRows(store), ...configured, directory, book, actor: COMMAND_ACTOR };
  const newId = () => uuidV7(clock());
  const freshBalance = (organizationId: string) => readFreshBalance(books, clock(), organizationId);
  return await work({ ...core, clock, random, newId, freshBalance, store, config, terminal, flags });
}

/** Reads a balance after applying every grant that has taken effect or expired. Rejects with not_found. */
async function readFreshBalance(books: Books, nowMs: number, organizationId: string): Promise<BalanceRow> {
  const balance = await books.balance(organizationId);
  if (balance === undefined) throw unknownOrganization(organizationId);
  if (balance.nextChangeAtMs === null || balance.nextChangeAtMs > nowMs) return balance;
  const [outcome] = await books.apply("durable", [{ kind: "refresh", organizationId }]);
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  return outcome.balance;
}
