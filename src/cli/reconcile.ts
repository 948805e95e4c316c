import { DAY_MS, dayStart, HOUR_MS, isoTime } from "../api/time.ts";
import { environmentVariable } from "../config/sources.ts";
import { creditsFromMicro, dollarsFromMicro, dollarText } from "../credits/amount.ts";
import { COUNTED } from "../credits/provider-line.ts";
import { OperatorError } from "../errors.ts";
import {
  argument,
  command,
  date,
  jsonOf,
  optional,
  pairs,
  table,
  text,
  toggle,
  withDefault,
  wordOf,
} from "../operations/command.ts";
import { knownOrganization } from "../operations/core.ts";
import {
  APIS,
  BOOK_KINDS,
  CSV_COLUMNS,
  type FetchOptions,
  fetchLines,
  readLines,
  usualProvider,
} from "../providers/books.ts";
import { Overviews } from "../reports/overview.ts";
import { type ComparedPair, compareBooks } from "../reports/reconciliation.ts";
import { UsageDays } from "../reports/usage-days.ts";
import { SideBySide } from "../stores/queries/side-by-side.ts";
import type { Workspace } from "./workspace.ts";

const MARGIN_GROUPS = ["model", "route", "organization"] as const;
const EXIT_DIFFERENT = 2;

export const reconcileBooks = command({
  usage: "reconcile [file]",
  summary: "Compare the requests with a provider's books, and exit with 2 if they differ; nothing is written",
  flags: {
    file: optional("[file]", "", text),
    provider: {
      ...argument("--provider <name>", wordOf(BOOK_KINDS)),
      description: `whose books: ${BOOK_KINDS.join(", ")}`,
      isRequired: true,
    },
    upstream: optional("--upstream <id>", "provider in the configuration (default: the one of this name)", text),
    fromMs: optional("--from <date>", "start of the period (default: that of the file)", date),
    toMs: optional("--to <date>", "end of the period, exclusive (default: that of the file)", date),
    apiKey: optional("--key <id>", "only lines of this key of the provider, by its id", text),
    columns: pairs("--column <name=header...>", `header of a column of a CSV file: ${CSV_COLUMNS.join(", ")}`),
    names: pairs("--model <theirs=ours...>", "name of a model at the provider, and in the routes"),
    bucket: withDefault(
      "--bucket <length>",
      "hour or day: for the API, and for a CSV file without ids",
      "hour",
      wordOf(["hour", "day"]),
    ),
    costs: toggle("--costs", "read the costs from the API instead of the usage"),
    apiUrl: optional("--api-url <url>", "address of the API (default: the provider's)", text),
  },
  input({ columns, names, bucket, ...flags }) {
    const { file, provider, upstream, fromMs, toMs } = flags;
    const unknown = columns?.find(([name]) => !CSV_COLUMNS.includes(name));
    if (unknown !== undefined) {
      throw new OperatorError(
        `--column names ${JSON.stringify(unknown[0])}, but must name: ${CSV_COLUMNS.join(", ")}.`,
      );
    }
    if (fromMs !== null && toMs !== null && toMs <= fromMs)
      throw new OperatorError("--to must be a time after --from.");
    const api = provider in APIS ? (provider as keyof typeof APIS) : undefined;
    if (file === null && (api === undefined || fromMs === null || toMs === null)) {
      throw new OperatorError(`Name a file${api ? ", or state --from and --to to ask the API" : ""}.`);
    }
    const providerId = upstream ?? usualProvider(provider);
    if (providerId === null) throw new OperatorError("Name the provider of the file with --upstream.");
    const bucketMs = bucket === "day" ? DAY_MS : HOUR_MS;
    return { ...flags, api, providerId, bucketMs, columns: new Map(columns), names: new Map(names) };
  },
  async run({ store, terminal, flags: { json, ...sources } }: Workspace, input) {
    const { file, provider, providerId } = input;
    const { perDollar } = (await import("../config.ts")).loadGroup({ flags: sources }, "credits");
    const lines = file === null ? linesOfApi(input) : readLines(provider, file, input.columns);
    using sides = new SideBySide();
    const requests = (fromMs: number, toMs: number) => store.requests.endedRequests(fromMs, toMs);
    const { outcomes, ...found } = await compareBooks({ ...input, lines, requests, sides });
    const { matchedBy, badLines, moreBadLines, cutBuckets } = found;
    const head = { provider, upstream: providerId, from: isoTime(found.fromMs), to: isoTime(found.toMs), matchedBy };
    if (json === true) terminal.out(`${JSON.stringify(head).slice(0, -1)},"differences":[`);
    const counts = { both: 0, onlyThere: 0, onlyHere: 0, different: 0 };
    const sums: Sums = new Map();
    let before = "";
    for (const outcome of outcomes()) {
      counts[outcome.kind] += 1;
      addUp(sums, outcome);
      if (outcome.kind === "both") continue;
      terminal.out(json === true ? `${before}${JSON.stringify(jsonOfPair(outcome))}` : textOfPair(outcome));
      before = ",";
      await terminal.drained();
    }
    const { both, onlyThere, onlyHere, different } = counts;
    if (onlyThere + onlyHere + different + badLines.length > 0) terminal.exitWith(EXIT_DIFFERENT);
    const totals = { there: shown(sums.get(ALL)?.there), here: shown(sums.get(ALL)?.here) };
    const margins = marginsOf(sums, perDollar);
    if (json === true) {
      const result = { counts, totals, margins, badLines, moreBadLines, cutBuckets };
      return void terminal.out(`],${JSON.stringify(result).slice(1)}`);
    }
    for (const { place, message } of badLines) terminal.out(`${place} cannot be used: ${message}.`);
    if (moreBadLines > 0) terminal.out(`${moreBadLines} more lines cannot be used.`);
    if (cutBuckets > 0)
      terminal.out(`Buckets that are only partly in the period, and are not compared: ${cutBuckets}.`);
    const rows = SUMMED.map((name) => [name, ...[totals.there, totals.here].map((sum) => `${sum[name] ?? ""}`)]);
    terminal.out(table(["SUM", "THERE", "HERE"], rows));
    const lost = margins.map((margin) => Object.values(margin).map(String));
    if (lost.length > 0) terminal.out(table(["MODEL", "REQUESTS", "CHARGED", "COST", "MARGIN"], lost));
    const kinds = `${both} in both, ${onlyThere} only there, ${onlyHere} only here, ${different} different`;
    terminal.out(`${head.from} to ${head.to}, matched by ${matchedBy}: ${kinds}.`);
    return undefined;
  },
});

export const printMargins = command({
  usage: "margins",
  summary: "Compare charges with the costs that providers reported, by month and by model, route or organization",
  flags: {
    by: withDefault("--by <group>", MARGIN_GROUPS.join(", "), "model", wordOf(MARGIN_GROUPS)),
    organizationId: optional("--org <id>", "only this organization", text),
    fromDay: optional("--from <day>", "first day (default: 30 days)", date),
    toDay: optional("--to <day>", "last day, inclusive (default: today)", date),
  },
  async run({ store, clock, flags, accounts }: Workspace, { organizationId, fromDay, toDay, by }) {
    await knownOrganization({ accounts }, organizationId);
    const { perDollar } = (await import("../config.ts")).loadGroup({ flags }, "credits");
    const days = new UsageDays({ rows: store.usage, books: store.books, clock, log: { warn: () => undefined } });
    const options = { rows: store.usage, refusals: store.refusals, days, clock, perDollar: () => perDollar };
    const period = { fromDay: fromDay && dayStart(fromDay), toDay: toDay && dayStart(toDay) };
    const margins = await new Overviews(options).margins({ organizationId, by, ...period });
    const rows = margins.data.map((row) => Object.values(row).map(String));
    const headings = ["MONTH", by.toUpperCase(), "REQUESTS", "CHARGED", "CHARGED WITH COST", "PROVIDER COST", "MARGIN"];
    return { json: { ...jsonOf(margins), data: margins.data.map(jsonOf) }, text: table(headings, rows) };
  },
});

/** Yields the lines of an API, with the key that the environment has. Throws OperatorError. */
function linesOfApi({ api, fromMs, toMs, ...input }: LinesOfApi) {
  if (api === undefined || fromMs === null || toMs === null) throw new Error("an input that was refused");
  const { variable } = APIS[api];
  const key = environmentVariable(variable);
  if (key === undefined) throw new OperatorError(`${variable} is not set. It must be an administrator's key.`);
  return fetchLines(api, key, { ...input, fromMs, toMs });
}

type LinesOfApi = Pick<FetchOptions, "bucketMs" | "costs" | "apiUrl"> & {
  api: keyof typeof APIS | undefined;
  fromMs: number | null;
  toMs: number | null;
};

const SUMMED = [...COUNTED, "cost", "charged"] as const;
type Values = { [Name in (typeof SUMMED)[number]]?: bigint | null };
/** The sums of each model, and of all. */
type Sums = Map<string, Record<"there" | "here", Values>>;
const ALL = "";

function addUp(sums: Sums, { there, here }: Pick<ComparedPair, "there" | "here">): void {
  for (const model of [(here ?? there)?.model ?? ALL, ALL]) {
    const sum = sums.get(model) ?? { there: {}, here: {} };
    sums.set(model, sum);
    for (const [into, from] of [[sum.there, there] as const, [sum.here, here] as const]) {
      for (const name of SUMMED) if (from?.[name] != null) into[name] = (into[name] ?? 0n) + from[name];
    }
  }
}

/** Returns what the provider's books name as the cost of each model, and what was charged for it. */
function marginsOf(sums: Sums, perDollar: string) {
  return [...sums].flatMap(([model, { there, here }]) => {
    if (model === ALL || there.cost == null) return [];
    const { requests = null, charged } = shown(here);
    const margin = dollarText(dollarsFromMicro(here.charged ?? 0n, perDollar) - there.cost);
    return [{ model, requests, charged: charged ?? 0, cost: dollarText(there.cost), margin }];
  });
}

/** Returns counts and credits as numbers, dollars as an exact text, and null for what is not stated. */
function shown(values: Values = {}): Record<string, number | string | null> {
  const shownAs = (name: keyof Values, value: bigint) =>
    name === "cost" ? dollarText(value) : name === "charged" ? creditsFromMicro(value) : Number(value);
  return Object.fromEntries(SUMMED.map((name) => [name, values[name] == null ? null : shownAs(name, values[name])]));
}

function jsonOfPair({ kind, fields, there, here }: ComparedPair) {
  const side = (entry: ComparedPair["there"]) =>
    entry === undefined
      ? null
      : { model: entry.model, place: entry.place || null, lines: Number(entry.lines), ...shown(entry) };
  const time = isoTime(Number((there ?? here)?.atMs));
  return { kind, time, fields, there: side(there), here: side(here) };
}

function textOfPair({ kind, fields, there, here }: ComparedPair): string {
  const printed = (entry: ComparedPair["there"], name: string) => ({ ...entry, ...shown(entry) })[name as "lines"];
  const values = fields.map((name) => `${name} ${printed(there, name)} there, ${printed(here, name)} here`);
  const { atMs, model } = here ?? there ?? {};
  const words = [KINDS[kind], isoTime(Number(atMs)), model, there?.place, here?.place, values.join("; ")];
  return words.filter(Boolean).join("  ");
}

const KINDS = { both: "both", onlyThere: "only there", onlyHere: "only here ", different: "different " };
