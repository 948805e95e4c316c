/** Counts that both sides have. Token classes are disjoint; reasoning counts as output. */
export const COUNTED = ["requests", "input", "cachedInput", "cacheWrite", "output"] as const;
/** All values that are added up. */
export const SUMMED = [...COUNTED, "cost", "charged"] as const;
/** Counts that are null are not stated. */
export type Counts<Value = bigint | null> = Record<(typeof COUNTED)[number], Value>;

/** A line of a provider's records: one request if it has an id, otherwise the sum of a time bucket. */
export interface ProviderLine extends Counts {
  /** Its position, such as `line 12` or `data[3].results[0]`. */
  place: string;
  atMs: number;
  /** Length of the bucket; 0 for a point in time. */
  lengthMs: number;
  /** The service's id of the request, or the provider's id of its answer. */
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
