import { isoTime } from "../../src/api/time.ts";

/** Requests of a provider in the books, as SQL columns for `bulkStatements`, and what the provider has of them. */
export const BOOKED_COLUMNS = {
  upstream: "'shop/m-1'",
  charge: "'i' || (100 + n % 7) || '@1000000 c20@100000 o' || (50 + n % 5) || '@2000000'",
  is_streamed: "0",
  provider_response_id: "'gen-' || n",
  // Hundredths of a cent, in ten-thousand-millionths of a dollar.
  provider_cost: "1000000 + n",
};

const COLUMNS = ["Generation", "Created", "Model", "Input", "Cached", "Output", "Charged"];
export const CSV_FLAGS = ["id=Generation", "time=Created", "model=Model", "input=Input", "cached_input=Cached"]
  .concat(["output=Output", "cost=Charged"])
  .flatMap((column) => ["--column", column]);

/** Five of 500 requests differ: each in another way. */
const EVERY = 500;
const KINDS = ["onlyService", "onlyProvider", "tokens", "cost", "model"] as const;
export type Injected = Record<(typeof KINDS)[number], string[]>;

/** Yields the lines of a provider's CSV file, in no order, and collects the ids of the lines that differ. */
export function* providerCsv(
  count: number,
  { fromMs, stepMs }: { fromMs: number; stepMs: number },
  injected: Injected,
) {
  yield `${COLUMNS.join(",")}\r\n`;
  for (let turn = 0; turn < count; turn += 1) {
    // 7,919 is a prime: the lines come in another order than the requests.
    const n = (turn * 7_919) % count;
    const kind = KINDS[[100, 200, 300, 400, 499].indexOf(n % EVERY)];
    if (kind !== undefined) injected[kind].push(kind === "onlyProvider" ? `gen-extra-${n}` : `gen-${n}`);
    const line = (id: string) => {
      const output = 50 + (n % 5) + (kind === "tokens" ? 1 : 0);
      const dollars = (1_000_000 + n) / 1e10 + (kind === "cost" ? 0.01 : 0);
      const model = kind === "model" ? "m-2" : '"m-1"';
      const time = isoTime(fromMs + stepMs * n);
      return `${[id, time, model, 100 + (n % 7), 20, output, dollars.toFixed(10)].join(",")}\r\n`;
    };
    if (kind !== "onlyService") yield line(`gen-${n}`);
    if (kind === "onlyProvider") yield line(`gen-extra-${n}`);
  }
}
