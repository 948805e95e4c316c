import { isoTime } from "../api/time.ts";
import type { MicroCredits } from "../credits/amount.ts";
import { StoreUnavailableError } from "../errors.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { appendLine, countDeadLetters, type DeadLetter, versionOf } from "./dead-letter-file.ts";
import { type SpooledTransition, toPlain } from "./spool-file.ts";

export type DeadLetters = ReturnType<typeof deadLettersIn>;

/** Stores transitions that no retry can book, so that an operator can review them and no other transition waits for them. */
export function deadLettersIn({ file, clock, log }: { file: string; clock: () => number; log: Log }) {
  let counted: { version: string | undefined; count: number } = { version: undefined, count: 0 };
  const append = (entry: object) => appendLine(file, { at: isoTime(clock()), ...entry });
  return {
    /** Counts the entries that were not booked. The file, which may be large, is read once at a time, and only if it has changed. */
    count: sharedRun(async () => {
      const version = await versionOf(file);
      if (version !== counted.version) counted = { version, count: await countDeadLetters(file) };
      return counted.count;
    }),
    /** Adds a transition. Resolves when it is on the disk. */
    async add(transition: SpooledTransition, reason: unknown): Promise<void> {
      const { organizationId, holdId } = transition.facts;
      await append({ reason: messageOf(reason), transition: toPlain(transition) });
      const fields = { kind: transition.kind, organizationId, holdId, file, err: reason };
      log.error(fields, "a transition could not be booked: it is in the dead-letter file");
    },
    /** Adds a line of a spool that is not a valid record. Resolves when it is on the disk. */
    async addLine(line: string): Promise<void> {
      await append({ reason: "the line was damaged", line });
      log.error({ file }, "a line of a spool is damaged: it is in the dead-letter file");
    },
  };
}

/** Returns why a transition can never be booked, from the outcome of its booking; undefined if it is booked. */
export function refusalOf({ kind }: SpooledTransition, { outcome }: { outcome: string }): string | undefined {
  if (outcome === "closed") return "the request belongs to a closed period, and may have been booked in it";
  // The hold of a release may have expired or been lost: there is nothing left to return.
  if (kind === "settle" ? outcome === "charged" : outcome !== "unknown_organization") return undefined;
  return `the store answered ${outcome}`;
}

export type RetryOutcome =
  | { outcome: "booked"; charged: MicroCredits; shortfall: MicroCredits }
  | { outcome: "refused"; reason: string };

/**
 * Books a dead letter again, and notes in the file that it is booked. A charge that was booked meanwhile is not booked
 * again. Rejects with StoreUnavailableError.
 */
export async function retryDeadLetter(
  books: Pick<Books, "apply">,
  { file, clock }: { file: string; clock: () => number },
  { id, reason, transition }: DeadLetter,
): Promise<RetryOutcome> {
  if (transition === null) return { outcome: "refused", reason };
  const booked = await book(books, transition);
  if (booked.outcome === "booked") await appendLine(file, { at: isoTime(clock()), booked: id });
  return booked;
}

async function book(books: Pick<Books, "apply">, transition: SpooledTransition): Promise<RetryOutcome> {
  try {
    const [outcome] = await books.apply("durable", [transition]);
    const refusal = refusalOf(transition, outcome);
    if (refusal !== undefined) return { outcome: "refused", reason: refusal };
    const { charged = 0n, shortfall = 0n } = "shortfall" in outcome ? outcome : {};
    return { outcome: "booked", charged, shortfall };
  } catch (error) {
    if (error instanceof StoreUnavailableError) throw error;
    return { outcome: "refused", reason: messageOf(error) };
  }
}

function messageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
