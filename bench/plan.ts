import { parseArgs } from "node:util";
import { OTHERS } from "./contenders.ts";
import { ENDPOINT_NAMES, type EndpointName } from "./endpoints.ts";
import { EVENTS_DEFAULT } from "./payload.ts";
import type { Load } from "./round.ts";
import type { Pace } from "./upstreams.ts";

const KINDS = ["unstreamed", "streamed"];
const STORES = ["sqlite", "postgres"];
const OWN = "tollgate";

/** A run: every load and kind of answer is measured on every contender that serves the endpoints. */
export interface Plan {
  seconds: number;
  rounds: number;
  loads: Load[];
  /** Answers of each kind that a contender sends before it is measured. */
  warmUp: number;
  others: string[];
  /** Stores, workers, and budgets of each organization, of this checkout; none if it does not take part. */
  variants: { store: string; workers: number; budgets: number }[];
  before: string | undefined;
  /** The kinds of answers: streamed or not. */
  kinds: boolean[];
  endpoints: EndpointName[];
  organizations: number[];
  promptBytes: number;
  pace: Pace;
}

const OPTIONS = {
  seconds: { type: "string", default: "5" },
  rounds: { type: "string", default: "5" },
  connections: { type: "string", default: "1,8,32,256" },
  rate: { type: "string" },
  "warm-up": { type: "string", default: "100000" },
  contenders: { type: "string", default: [...Object.keys(OTHERS), OWN].join() },
  before: { type: "string" },
  answers: { type: "string", default: KINDS.join() },
  endpoint: { type: "string", default: "chat" },
  store: { type: "string", default: "sqlite" },
  workers: { type: "string", default: "1" },
  organizations: { type: "string", default: "1" },
  budgets: { type: "string", default: "0" },
  "prompt-bytes": { type: "string", default: "0" },
  events: { type: "string", default: String(EVENTS_DEFAULT) },
  apart: { type: "string", default: "0" },
} as const;
type Option = keyof typeof OPTIONS;

/** Reads the options. Throws an error that names the option that is wrong. */
export function readPlan(words?: string[]): Plan {
  const { values } = parseArgs({ ...(words && { args: words }), options: OPTIONS });
  const numbers = (option: Option, least = 1) => {
    const all = (values[option] ?? "").split(",").map(Number);
    if (all.every((one) => Number.isInteger(one) && one >= least)) return all;
    throw new Error(`--${option} takes whole numbers from ${least}, separated by commas.`);
  };
  const number = (option: Option, least = 1) => {
    const [first = 0, ...more] = numbers(option, least);
    if (more.length === 0) return first;
    throw new Error(`--${option} takes one number.`);
  };
  const choices = <T extends string>(option: Option, known: readonly T[]) => {
    const all = (values[option] ?? "").split(",");
    if (all.every((one) => known.includes(one as T))) return all as T[];
    throw new Error(`--${option} takes ${known.join(", ")}, or several with commas.`);
  };
  const contenders = choices("contenders", [...Object.keys(OTHERS), OWN]);
  const stores = choices("store", STORES);
  const workers = numbers("workers");
  if (workers.some((count) => count > 1) && !stores.includes("postgres")) {
    throw new Error("--workers above 1 needs --store postgres, because one process at a time can use a SQLite store.");
  }
  const variants = stores.flatMap((store) => {
    const processes = store === "sqlite" ? [1] : workers;
    return processes.flatMap((count) => numbers("budgets", 0).map((budgets) => ({ store, workers: count, budgets })));
  });
  return {
    seconds: number("seconds"),
    rounds: number("rounds"),
    loads: loadsOf(numbers("connections"), values.rate === undefined ? undefined : numbers("rate")),
    warmUp: number("warm-up", 0),
    others: contenders.filter((one) => one !== OWN),
    variants: contenders.includes(OWN) ? variants : [],
    before: values.before,
    kinds: choices("answers", KINDS).map((kind) => kind === "streamed"),
    endpoints: choices("endpoint", ENDPOINT_NAMES),
    organizations: numbers("organizations"),
    promptBytes: number("prompt-bytes", 0),
    // The role, a piece of text, the finish reason, the usage and the end.
    pace: { events: number("events", 5), apartMs: number("apart", 0) },
  };
}

/** A rate takes as many connections as its answers need. */
function loadsOf(connections: readonly number[], rates: readonly number[] | undefined): Load[] {
  return rates?.map((rate) => ({ connections: 0, rate })) ?? connections.map((count) => ({ connections: count }));
}
