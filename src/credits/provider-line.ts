/** The counts of both sides' books. Classes of tokens are disjoint; reasoning is output. */
export const COUNTED = ["requests", "input", "cachedInput", "cacheWrite", "output"] as const;
/** All that is added up. */
export const SUMMED = [...COUNTED, "cost", "charged"] as const;
/** Counts that are null are not stated. */
export type Counts<Value = bigint | null> = Record<(typeof COUNTED)[number], Value>;

/** A line of a provider's books: one request where it has an id, else the sum of a bucket of time. */
export interface ProviderLine extends Counts {
  /** Its position: `line 12` or `data[3].results[0]`. */
  place: string;
  atMs: number;
  /** Length of the bucket; 0 for one moment. */
  lengthMs: number;
  /** Our id of the request, or the provider's id of its answer. */
  id: string | null;
  /** Null where the line is about all models. */
  model: string | null;
  /** Id of the provider's key that the requests were made with. */
  apiKey: string | null;
  /** In `10^-PROVIDER_COST_DIGITS` dollars. */
  cost: bigint | null;
}

/** A line that cannot be used, and why. */
export type BadLine = Pick<ProviderLine, "place"> & { message: string };
export type ReadLine = ProviderLine | BadLine;
