import type { AccountRows } from "../stores/queries/accounts.ts";
import type { Log } from "../telemetry/logger.ts";

export interface LastUsesOptions {
  rows: Pick<AccountRows, "noteUses">;
  log: Log;
  everyMs?: number;
}

const EVERY_MS = 30_000;
const ROWS_A_WRITE = 500;

/**
 * Records when tokens were last used, and writes the times every 30 s in batches. The first use of a token is written at
 * once, because it decides whether a rotation may still replace the token.
 */
export class LastUses {
  readonly #options: LastUsesOptions;
  readonly #uses = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LastUsesOptions) {
    this.#options = options;
  }

  note(tokenId: string, atMs: number, isFirst: boolean): void {
    this.#uses.set(tokenId, atMs);
    if (isFirst) void this.write();
  }

  start(): void {
    this.#timer = setInterval(() => void this.write(), this.#options.everyMs ?? EVERY_MS).unref();
  }

  /** Writes the remaining uses. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.write();
  }

  /** Writes the recorded uses. Never rejects: what cannot be written is retried the next time. */
  async write(): Promise<void> {
    const uses = [...this.#uses].map(([tokenId, atMs]) => ({ tokenId, atMs }));
    this.#uses.clear();
    for (let at = 0; at < uses.length; at += ROWS_A_WRITE) {
      const chunk = uses.slice(at, at + ROWS_A_WRITE);
      try {
        await this.#options.rows.noteUses(chunk);
      } catch (error) {
        this.#options.log.debug({ err: error }, "the last uses of tokens could not be written");
        for (const { tokenId, atMs } of uses.slice(at)) if (!this.#uses.has(tokenId)) this.#uses.set(tokenId, atMs);
        return;
      }
    }
  }
}
