import type { HoldFacts } from "../credits/facts.ts";
import { NO_TOKENS, type TokenCounts } from "../credits/price.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Log } from "../telemetry/logger.ts";
import { forEachInChunks, type RunInBackground } from "./background-work.ts";
import { type CommitQueue, HOLDS } from "./commit-queue.ts";
import { Lease, type Moment } from "./lease.ts";
import type { HoldTerms } from "./recovery.ts";

export interface HoldRenewalOptions extends HoldTerms {
  /** Name of this process as the owner of holds. */
  owner: string;
  queue: CommitQueue;
  /** The present moment. */
  now: () => Moment;
  runInBackground: RunInBackground;
  log: Log;
}

/** Returns the tokens delivered so far and the prices of the current route: an expiry would charge them. */
export type Checkpoint = () => { facts: HoldFacts; tokens: TokenCounts };

interface OpenHold {
  facts: HoldFacts;
  amount: bigint;
  lease: Lease;
  /** Undefined until something has been delivered. */
  checkpoint: Checkpoint | undefined;
}

/** Renews the open holds of this process. */
export class HoldRenewal {
  readonly #options: HoldRenewalOptions;
  readonly #open = new Map<string, OpenHold>();
  #timer: NodeJS.Timeout | undefined;
  /** Renews all open holds of this process. A renewal that fails does not prevent the others. Never rejects. */
  readonly renew = sharedRun(() =>
    this.#options.runInBackground("renewing holds", () =>
      forEachInChunks([...this.#open.values()], (hold) => this.#renewOne(hold)),
    ),
  );

  constructor(options: HoldRenewalOptions) {
    this.#options = options;
  }

  /** Renews a hold, queued at `queuedAt`, until `forget`. Nothing counts as delivered until a checkpoint is set. */
  track(facts: HoldFacts, amount: bigint, queuedAt: Moment): Lease {
    const { isShared, holdLifeMs, now } = this.#options;
    const lease = new Lease(isShared ? holdLifeMs : Number.POSITIVE_INFINITY, now, queuedAt);
    this.#open.set(facts.holdId, { facts, amount, lease, checkpoint: undefined });
    return lease;
  }

  /** Sets the checkpoint that each later renewal stores. */
  checkpoint(holdId: string, checkpoint: Checkpoint): void {
    const hold = this.#open.get(holdId);
    if (hold !== undefined) hold.checkpoint = checkpoint;
  }

  forget(holdId: string): void {
    const hold = this.#open.get(holdId);
    if (hold === undefined) return;
    this.#open.delete(holdId);
    // The map's discarded tables keep old entries alive until the next major garbage collection.
    hold.checkpoint = undefined;
    hold.lease.close();
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const { lease } of this.#open.values()) lease.check();
      void this.renew();
    }, this.#options.renewEveryMs).unref();
  }

  /** Resolves when a running renewal has ended. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.renew.ended();
  }

  async #renewOne(hold: OpenHold): Promise<void> {
    const { queue, holdLifeMs: lifeMs, owner, log, now } = this.#options;
    const queuedAt = now();
    const { facts, tokens } = hold.checkpoint?.() ?? { facts: hold.facts, tokens: NO_TOKENS };
    const { holdId, organizationId } = facts;
    const renewal = await queue.push({ kind: "renew", facts, amount: hold.amount, tokens, lifeMs, owner }, HOLDS);
    if (renewal.outcome === "renewed") {
      hold.lease.renew(queuedAt);
      // A store that crashes can lose the newest holds.
      if (renewal.remade) log.warn({ organizationId, holdId }, "hold was lost by the store and created again");
      return;
    }
    if (!this.#open.has(holdId)) return;
    this.forget(holdId);
    // Charged or released: this process did that itself a moment ago.
    if (renewal.outcome === "ended" && renewal.state !== "recovered") return;
    hold.lease.end();
    log.warn({ organizationId, holdId }, "hold ended while its request was running");
  }
}
