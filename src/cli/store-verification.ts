import { readConfigText } from "../config/sources.ts";
import { OperatorError } from "../errors.ts";
import { holdEndsWithinMs, type Verification, verifyBooks } from "../ledger/verify.ts";
import { type OpenStoreOptions, openStore } from "../stores/open.ts";
import type { Store } from "../stores/store.ts";
import type { CommonFlags, Terminal } from "./command.ts";

type Place = Pick<OpenStoreOptions, "database" | "dataDir" | "isCopyTarget">;

/** Verifies the books of all organizations, with the configured times of holds. */
export async function verifyAll({ books }: Store, flags: CommonFlags): Promise<Verification> {
  return verifyBooks(books, await configuredEndMs(flags));
}

/** Returns the configured time within which a hold ends. Undefined without a configuration file: no schema is loaded then. */
async function configuredEndMs(flags: CommonFlags): Promise<number | undefined> {
  if (readConfigText({ flags }) === undefined) return undefined;
  const { loadLedgerSettings } = await import("../config.ts");
  return holdEndsWithinMs(loadLedgerSettings({ flags }));
}

/** Rejects with OperatorError if there is no store, or one of another version. */
export async function expectStore({ clock }: Terminal, place: Place): Promise<void> {
  const store = await openStore({ ...place, role: "command", creates: false, clock });
  await store.close();
}

/** Verifies the books of a store that no service uses yet. */
export async function verifyCopy({ clock }: Terminal, flags: CommonFlags, place: Place): Promise<Verification> {
  const store = await openStore({ ...place, role: "command", creates: false, clock });
  try {
    return await verifyAll(store, flags);
  } finally {
    await store.close();
  }
}

/** Verifies the books of a source or of a copy. Rejects with OperatorError if they do not balance. */
export async function expectBooks(terminal: Terminal, flags: CommonFlags, place: Place): Promise<Verification> {
  const found = await verifyCopy(terminal, flags, place);
  const [first] = found.violations;
  if (!found.ok) throw new OperatorError(`The books do not balance: ${first?.message ?? ""}`);
  return found;
}

export function booksText({ ok, organizations, holds, events }: Verification): string {
  const books = ok ? "they balance" : "they do not balance";
  return `${books}: ${organizations} organizations, ${holds} holds, ${events} charges`;
}
