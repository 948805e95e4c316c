import type { ProviderAnswer, UpstreamChunk } from "../providers/provider.ts";
import type { Meter } from "./meter.ts";

type Pieces = readonly UpstreamChunk[];
type Item = IteratorResult<Pieces, unknown>;

/** How long a stream's first words are waited for before the client is told that it has begun. */
const FIRST_WORDS_MS = 10_000;
/** Items without a word that are kept back. */
const ITEMS_KEPT_MAX = 100;

/**
 * An answer of which the client can be told because it will hardly fail any more: a streamed one once it says something, an
 * unstreamed one once it is complete. Until then another route can still take its place, so this is for every route but the
 * last. Rejects as the answer's chunks do; where the client left, what had come until then is metered.
 */
export async function begun(
  answer: ProviderAnswer,
  { isStreamed, signal, meter }: { isStreamed: boolean; signal: AbortSignal; meter: Meter },
): Promise<ProviderAnswer> {
  const source = answer.chunks[Symbol.asyncIterator]();
  const kept: Pieces[] = [];
  const late = Promise.withResolvers<undefined>();
  const timer = isStreamed ? setTimeout(late.resolve, FIRST_WORDS_MS, undefined) : undefined;
  try {
    for (;;) {
      const next = source.next();
      const item = await Promise.race([next, late.promise]);
      if (item === undefined || item.done === true) return { ...answer, chunks: new Resumed(kept, next, source) };
      kept.push(item.value);
      const isEnough = isStreamed && (item.value.some(saysSomething) || kept.length >= ITEMS_KEPT_MAX);
      if (isEnough) return { ...answer, chunks: new Resumed(kept, undefined, source) };
    }
  } catch (error) {
    if (signal.aborted) for (const pieces of kept) meter.add(pieces);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function saysSomething({ delta, finish_reason }: UpstreamChunk): boolean {
  if (finish_reason !== undefined) return true;
  if (delta === undefined) return false;
  return Boolean(delta.content || delta.reasoning_content || delta.refusal || delta.tool_calls?.length);
}

/** What was taken from an answer already, then the rest of it. */
class Resumed implements AsyncIterableIterator<Pieces> {
  readonly #kept: Pieces[];
  #pending: Promise<Item> | undefined;
  readonly #source: AsyncIterator<Pieces>;

  constructor(kept: Pieces[], pending: Promise<Item> | undefined, source: AsyncIterator<Pieces>) {
    this.#kept = kept;
    this.#pending = pending;
    this.#source = source;
    // Whoever reads on meets the failure; until then it is nobody's.
    pending?.catch(() => {});
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Item> {
    const kept = this.#kept.shift();
    if (kept !== undefined) return Promise.resolve({ done: false, value: kept });
    const pending = this.#pending;
    this.#pending = undefined;
    return pending ?? this.#source.next();
  }

  async return(): Promise<Item> {
    await this.#source.return?.();
    return { done: true, value: undefined };
  }
}
