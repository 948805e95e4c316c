import { OperatorError } from "../errors.ts";
import { type Verification, verifyBooks } from "../ledger/verify.ts";
import { type OpenStoreOptions, openStore } from "../stores/open.ts";
import type { Terminal } from "./command.ts";
import { organizationIds } from "./ledger.ts";

type Place = Pick<OpenStoreOptions, "database" | "dataDir" | "isCopyTarget">;

/** Rejects with OperatorError if there is no store, or one of another version. */
export async function expectStore({ clock }: Terminal, place: Place): Promise<void> {
  const store = await openStore({ ...place, role: "command", creates: false, clock });
  await store.close();
}

/** Verifies the books of a store that no service uses yet. */
export async function verifyStore({ clock }: Terminal, place: Place): Promise<Verification> {
  const store = await openStore({ ...place, role: "command", creates: false, clock });
  try {
    return await verifyBooks(store.books, organizationIds(store));
  } finally {
    await store.close();
  }
}

/** Verifies the books of a source or of a copy. Rejects with OperatorError if they do not balance. */
export async function expectBooks(terminal: Terminal, place: Place): Promise<Verification> {
  const found = await verifyStore(terminal, place);
  const [first] = found.violations;
  if (!found.ok) throw new OperatorError(`The books do not balance: ${first?.message ?? ""}`);
  return found;
}

export function booksText({ ok, organizations, holds, events }: Verification): string {
  const books = ok ? "they balance" : "they do not balance";
  return `${books}: ${organizations} organizations, ${holds} holds, ${events} charges`;
}
