import type { ExpireTransition } from "../credits/books.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Books, SeenHold } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { type AllowanceOptions, grantAllowances } from "./allowances.ts";
import { forEachInChunks, type RunInBackground } from "./background-work.ts";
import { type BookCredits, type CommitQueue, DURABLE, ONCE } from "./commit-queue.ts";
import type { Recovery } from "./recovery.ts";
import type { Spool } from "./spool.ts";

const PAGE = 500;

export interface SweeperOptions {
  books: Pick<Books, "recoverableHolds" | "dueOrganizations">;
  allowances: AllowanceOptions["allowances"];
  queue: CommitQueue;
  collectDebts: (book: BookCredits) => Promise<void>;
  holdLifeMs: number;
  sweepEveryMs: number;
  recovery: Recovery;
  runInBackground: RunInBackground;
  /** Settlements and releases that wait for the store. Their holds must not expire before they are booked. */
  spool: Pick<Spool, "replay" | "endedOwners" | "forgetOwner">;
  log: Log;
}

/** Does what is due in the books of all organizations, and expires holds that are no longer renewed. */
export class Sweeper {
  readonly #options: SweeperOptions;
  #timer: NodeJS.Timeout | undefined;
  /** Does what is due: allowances, grants, debts, the spool, and holds that are no longer renewed. Never rejects. */
  readonly sweep = sharedRun(() => this.#sweepAll());
  #again: NodeJS.Timeout | undefined;

  constructor(options: SweeperOptions) {
    this.#options = options;
  }

  /** Starts with a sweep, because an earlier process may have left holds open. */
  start(): void {
    this.#timer = setInterval(() => void this.sweep(), this.#options.sweepEveryMs).unref();
    void this.sweep();
  }

  /** Resolves when a running sweep has ended. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    clearTimeout(this.#again);
    await this.sweep.ended();
  }

  async #sweepAll(): Promise<void> {
    const { spool, recovery, allowances, queue, collectDebts, runInBackground } = this.#options;
    const book: BookCredits = (transition) => queue.push(transition, DURABLE);
    await runInBackground("granting allowances", () => grantAllowances({ allowances, book }));
    await runInBackground("applying due grants", () => this.#applyDue());
    await runInBackground("collecting debts of payments", () => collectDebts(book));
    if (!(await spool.replay())) return;
    for (const owner of spool.endedOwners) recovery.endOwner(owner);
    await runInBackground("ending expired holds", () => this.#recoverHolds());
    await runInBackground("removing files of ended processes", () => this.#forgetOwners());
    this.#sweepAgain();
  }

  /** Sweeps again as soon as holds of an ended process can be expired. */
  #sweepAgain(): void {
    const waitMs = this.#options.recovery.nextClaimMs;
    clearTimeout(this.#again);
    if (waitMs === undefined || this.#timer === undefined) return;
    this.#again = setTimeout(() => void this.sweep(), waitMs).unref();
  }

  async #forgetOwners(): Promise<void> {
    const { spool, recovery } = this.#options;
    for (const owner of spool.endedOwners) if (!recovery.awaits(owner)) await spool.forgetOwner(owner);
  }

  /** Applies grants when they take effect or expire, without waiting for their organization to be used. */
  async #applyDue(): Promise<void> {
    const { books, queue } = this.#options;
    for (let after: string | null = null; ; ) {
      const due: string[] = await books.dueOrganizations({ after, limit: PAGE });
      await forEachInChunks(due, (organizationId) => queue.push({ kind: "refresh", organizationId }, ONCE));
      if (due.length < PAGE) return;
      after = due.at(-1) ?? null;
    }
  }

  async #recoverHolds(): Promise<void> {
    const { books, recovery, holdLifeMs: lifeMs } = this.#options;
    const holds: SeenHold[] = [];
    const search = { lifeMs, owners: recovery.owners, limit: PAGE };
    for (let afterHoldId: string | null = null; ; afterHoldId = holds.at(-1)?.holdId ?? null) {
      const page = await books.recoverableHolds({ ...search, afterHoldId });
      holds.push(...page.holds);
      if (page.holds.length === PAGE) continue;
      return forEachInChunks(recovery.claims(holds, page.nowMs), (claim) => this.#expire(claim));
    }
  }

  async #expire(claim: ExpireTransition): Promise<void> {
    const { queue, log } = this.#options;
    const outcome = await queue.push(claim, DURABLE);
    if (outcome.outcome !== "expired") return;
    const { organizationId, holdId } = claim;
    const fields = { organizationId, holdId, owner: claim.claim?.owner };
    log.warn(fields, "hold expired: its request was never settled");
    if (outcome.shortfall > 0n) log.error(fields, "credits did not cover an expired hold: the shortfall is recorded");
  }
}
