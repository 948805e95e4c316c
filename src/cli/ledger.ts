import { readConfigText } from "../config/sources.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { areCounts, priceOf } from "../credits/price.ts";
import { OperatorError, UnknownIdError } from "../errors.ts";
import {
  countDeadLetters,
  type DeadLetter,
  deadLetterFileOf,
  readDeadLetters,
  retryDeadLetter,
} from "../ledger/dead-letter.ts";
import type { SpooledTransition } from "../ledger/spool-file.ts";
import { holdEndsWithinMs, type Verification, verifyBooks } from "../ledger/verify.ts";
import { command, list, tableOf, toggle } from "../operations/command.ts";
import type { Store } from "../stores/store.ts";
import type { CommonFlags } from "./command.ts";
import type { Workspace } from "./workspace.ts";

export const listDeadLetters = command({
  usage: "ledger dead-letters list",
  summary: "List the dead letters of the data directory",
  flags: {},
  async run({ config }: Workspace) {
    const json = [];
    for await (const deadLetter of readDeadLetters(deadLetterFileOf(config.dataDir))) json.push(toJson(deadLetter));
    const text = tableOf(json, {
      ID: ({ id }) => id,
      TIME: ({ at }) => at,
      KIND: ({ kind }) => kind ?? "damaged",
      ORGANIZATION: ({ organizationId }) => organizationId,
      REQUEST: ({ holdId }) => holdId,
      CREDITS: ({ credits }) => credits,
      REASON: ({ reason }) => reason,
    });
    return { json, text };
  },
});

function toJson({ id, at, reason, transition }: DeadLetter) {
  if (transition === null) return { id, at, kind: null, organizationId: null, holdId: null, credits: null, reason };
  const { kind, facts } = transition;
  const { organizationId, holdId } = facts;
  return { id, at, kind, organizationId, holdId, credits: creditsOf(transition), reason };
}

/** Returns the price of a settlement; null if its counts are the reason why it could not be booked. */
function creditsOf(transition: SpooledTransition): number | null {
  if (transition.kind === "release") return 0;
  const { tokens, facts } = transition;
  return areCounts(tokens) ? creditsFromMicro(priceOf(tokens, facts.prices)) : null;
}

export const retryDeadLetters = command({
  usage: "ledger dead-letters retry [ids...]",
  summary: "Book dead letters again; the service may be running",
  flags: { ids: list("[ids...]", ""), all: toggle("--all", "all of them, instead of ids") },
  input({ ids, all }) {
    if (all !== (ids === null || ids.length === 0)) throw new OperatorError("State the ids of dead letters, or --all.");
    return { ids: ids ?? [], all };
  },
  async run({ config, store, clock, terminal }: Workspace, { ids, all }) {
    const file = deadLetterFileOf(config.dataDir);
    const missing = new Set(ids);
    for await (const { id } of readDeadLetters(file)) missing.delete(id);
    const [unknown] = missing;
    if (unknown !== undefined) throw new UnknownIdError("dead letter", unknown, "ledger dead-letters list");
    const json = [];
    for await (const deadLetter of readDeadLetters(file)) {
      const { id } = deadLetter;
      if (!all && !ids.includes(id)) continue;
      const result = await retryDeadLetter(store.books, { file, clock }, deadLetter);
      const isBooked = result.outcome === "booked";
      const charged = isBooked ? creditsFromMicro(result.charged) : null;
      const shortfall = isBooked ? creditsFromMicro(result.shortfall) : null;
      json.push({ id, outcome: result.outcome, charged, shortfall, reason: isBooked ? null : result.reason });
    }
    if (json.some(({ outcome }) => outcome === "refused")) terminal.exitWith(1);
    const text = tableOf(json, {
      ID: ({ id }) => id,
      OUTCOME: ({ outcome }) => outcome,
      CHARGED: ({ charged }) => charged,
      SHORTFALL: ({ shortfall }) => shortfall,
      REASON: ({ reason }) => reason,
    });
    return { json, text };
  },
});

export const verifyLedger = command({
  usage: "ledger verify",
  summary: "Check that the books balance; the service may be running",
  flags: {},
  async run({ store, config, terminal, flags }: Workspace) {
    const found = await verifyAll(store, flags);
    const { organizations, holds, events, violations, moreViolations } = found;
    const checked = `${organizations} organizations, ${holds} holds (open and released ones have no charge) and ${events} charges checked`;
    const [first] = violations;
    const file = deadLetterFileOf(config.dataDir);
    const deadLetters = await countDeadLetters(file);
    if (!found.ok || deadLetters > 0) terminal.exitWith(1);
    if (deadLetters > 0 && flags.json !== true) {
      terminal.error(`tollgate: dead letters, which could not be booked: ${deadLetters} (${file})`);
    }
    if (first !== undefined) {
      const others = violations.length - 1 + moreViolations;
      const more = others === 0 ? "" : `; violations found besides: ${others}`;
      const where = first.holdId === null ? first.organizationId : `${first.organizationId}, hold ${first.holdId}`;
      terminal.error(
        `tollgate: the books do not balance: ${first.message} (invariant ${first.invariant}, ${where}; ${checked}${more})`,
      );
      if (flags.json !== true) return undefined;
    }
    return { json: { ...found, deadLetters }, text: `The books balance: ${checked}.` };
  },
});

/** Verifies the books of all organizations, with the configured time within which a hold ends. */
export async function verifyAll({ books }: Store, flags: CommonFlags): Promise<Verification> {
  // Without a configuration file, no schema is loaded.
  if (readConfigText({ flags }) === undefined) return verifyBooks(books, undefined);
  const { loadGroup } = await import("../config.ts");
  return verifyBooks(books, holdEndsWithinMs(loadGroup({ flags }, "ledger")));
}
