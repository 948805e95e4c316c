import type { AnswerChunks, TakeChunks, UpstreamChunk } from "../providers/provider.ts";

export type Pieces = readonly UpstreamChunk[];
export type Item = IteratorResult<Pieces, unknown>;

/**
 * Passes an answer to `take` up to its end, and waits where `take` returns a promise. Rejects with the failure of the answer
 * or of `take`, and closes the upstream's connection then.
 */
export function relay(chunks: AnswerChunks, take: TakeChunks): Promise<void> {
  return chunks.passTo === undefined ? iterate(chunks, take) : chunks.passTo(take);
}

async function iterate(chunks: AnswerChunks, take: TakeChunks): Promise<void> {
  const reads = chunks[Symbol.asyncIterator]();
  try {
    for (let next = pass(await reads.next(), take); next !== "end"; next = pass(await reads.next(), take)) {
      if (next !== undefined) await next;
    }
  } catch (error) {
    // Closes the connection. Where that fails too, the first failure is reported.
    await reads.return?.().catch(() => undefined);
    throw error;
  }
}

/** Unlike `for await`, a loop with this keeps no chunks in a variable while it waits for a slow client. */
function pass({ done, value }: Item, take: TakeChunks): Promise<void> | "end" | undefined {
  return done === true ? "end" : take(value as Pieces);
}

/** An answer whose beginning was read: yields the buffered items, then the rest. */
export class Resumed implements AsyncIterableIterator<Pieces>, AnswerChunks {
  readonly #chunks: AnswerChunks;
  readonly #source: AsyncIterator<Pieces>;
  readonly #buffered: Pieces[];
  #pending: Promise<Item> | undefined;

  /** `pending` is the read after the buffered items, if it has begun. */
  constructor(chunks: AnswerChunks, buffered: Pieces[], pending: Promise<Item> | undefined) {
    this.#chunks = chunks;
    this.#source = chunks[Symbol.asyncIterator]();
    this.#buffered = buffered;
    this.#pending = pending;
    // The next read reports the rejection; until then it must not count as unhandled.
    pending?.catch(() => {});
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  passTo(take: TakeChunks): Promise<void> {
    return this.#passBeginning(take).then((isEnded) => (isEnded ? undefined : relay(this.#chunks, take)));
  }

  /** Passes on what was read before. Resolves to true if the answer has ended. */
  async #passBeginning(take: TakeChunks): Promise<boolean> {
    try {
      while (this.#buffered.length > 0 || this.#pending !== undefined) {
        const next = pass(await this.next(), take);
        if (next === "end") return true;
        await next;
      }
      return false;
    } catch (error) {
      await this.return().catch(() => undefined);
      throw error;
    }
  }

  next(): Promise<Item> {
    const buffered = this.#buffered.shift();
    if (buffered !== undefined) return Promise.resolve({ done: false, value: buffered });
    const pending = this.#pending;
    this.#pending = undefined;
    return pending ?? this.#source.next();
  }

  async return(): Promise<Item> {
    await this.#source.return?.();
    return { done: true, value: undefined };
  }
}
