import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

const EVERY_MS = 30_000;
const ROWS_A_WRITE = 500;

export type LastUses = ReturnType<typeof createLastUses>;

/** Records when tokens were last used, in batches; the first use at once, because then no rotation replaces the token any more. */
export function createLastUses({ rows, log }: { rows: Pick<Store["accounts"], "noteUses">; log: Log }) {
  const uses = new Map<string, number>();
  let timer: NodeJS.Timeout | undefined;
  /** Writes the recorded uses. Never rejects: what cannot be written is retried the next time. */
  const write = async (): Promise<void> => {
    const taken = [...uses].map(([tokenId, atMs]) => ({ tokenId, atMs }));
    uses.clear();
    for (let at = 0; at < taken.length; at += ROWS_A_WRITE) {
      try {
        await rows.noteUses(taken.slice(at, at + ROWS_A_WRITE));
      } catch (error) {
        log.debug({ err: error }, "the last uses of tokens could not be written");
        for (const { tokenId, atMs } of taken.slice(at)) if (!uses.has(tokenId)) uses.set(tokenId, atMs);
        return;
      }
    }
  };
  return {
    note(tokenId: string, atMs: number, isFirst: boolean): void {
      uses.set(tokenId, atMs);
      if (isFirst) void write();
    },
    start(): void {
      timer = setInterval(() => void write(), EVERY_MS).unref();
    },
    async stop(): Promise<void> {
      clearInterval(timer);
      await write();
    },
  };
}
