import { MARGIN_GROUPS } from "../api/admin/margin-groups.ts";
import { DAY_MS, dayStart, HOUR_MS, isoTime } from "../api/time.ts";
import { environmentVariable } from "../config/sources.ts";
import { creditsFromMicro, dollarsFromMicro, dollarText } from "../credits/amount.ts";
import { SUMMED } from "../credits/provider-line.ts";
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
import { APIS, BOOK_KINDS, CSV_COLUMNS, fetchLines, readLines, usualProvider } from "../providers/books.ts";
import { type ComparedPair, compareBooks } from "../reports/reconciliation.ts";
import { listPrinter } from "./command.ts";
import type { Workspace } from "./workspace.ts";

const EXIT_DIFFERENT = 2;

export const reconcileBooks = command({
  usage: "reconcile [file]",
  summary: "Compare the requests with a provider's records, and exit with 2 if they differ; nothing is written",
  flags: {
    file: optional("[file]", "", text),
    provider: {
      ...argument("--provider <name>", wordOf(BOOK_KINDS)),
      description: `whose records: ${BOOK_KINDS.join(", ")}`,
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
  input({ columns, names, bucket, file, costs, apiUrl, ...flags }) {
    const { provider, upstream, fromMs, toMs, apiKey } = flags;
    const unknown = columns?.find(([name]) => !CSV_COLUMNS.includes(name));
    if (unknown !== undefined) {
      throw new OperatorError(
        `--column names ${JSON.stringify(unknown[0])}, but must name: ${CSV_COLUMNS.join(", ")}.`,
      );
    }
    if (fromMs !== null && toMs !== null && toMs <= fromMs)
      throw new OperatorError("--to must be a time after --from.");
    const bucketMs = bucket === "day" ? DAY_MS : HOUR_MS;
    const linesOfApi = () => {
      if (!hasApi(provider)) throw new OperatorError("Specify a file.");
      if (fromMs === null || toMs === null) {
        throw new OperatorError("Specify a file, or --from and --to to ask the API.");
      }
      const { variable } = APIS[provider];
      const key = environmentVariable(variable);
      if (key === undefined) throw new OperatorError(`${variable} is not set. It must be an administrator's key.`);
      if (costs && apiKey !== null)
        throw new OperatorError("--costs and --key cannot be combined: providers do not report costs by key.");
      return fetchLines(provider, key, { fromMs, toMs, bucketMs, costs, byKey: apiKey !== null, apiUrl });
    };
    const lines = file === null ? linesOfApi() : readLines(provider, file, new Map(columns));
    const providerId = upstream ?? usualProvider(provider);
    if (providerId === null) throw new OperatorError("Name the provider of the file with --upstream.");
    return { ...flags, providerId, lines, bucketMs, names: new Map(names) };
  },
  async run({ store, terminal, flags }: Workspace, input) {
    const { provider, providerId } = input;
    const { perDollar } = (await import("../config.ts")).loadGroup({ flags }, "credits");
    // Loaded only here: every command loads this file.
    const { SideBySide } = await import("../stores/queries/side-by-side.ts");
    using sides = new SideBySide();
    const requests = (fromMs: number, toMs: number) => store.requests.endedRequests(fromMs, toMs);
    const { outcomes, ...found } = await compareBooks({ ...input, requests, sides });
    const { matchedBy, badLines, moreBadLines, cutBuckets } = found;
    const head = { provider, upstream: providerId, from: isoTime(found.fromMs), to: isoTime(found.toMs), matchedBy };
    const output = listPrinter(terminal, flags, { name: "differences", json: jsonOfPair, text: textOfPair });
    output.begin(head);
    const counts = { both: 0, onlyProvider: 0, onlyService: 0, different: 0 };
    const sums: Sums = new Map();
    for (const outcome of outcomes()) {
      counts[outcome.kind] += 1;
      addUp(sums, outcome);
      if (outcome.kind === "both") continue;
      output.entry(outcome);
      await terminal.drained();
    }
    const { both, onlyProvider, onlyService, different } = counts;
    if (onlyProvider + onlyService + different + badLines.length > 0) terminal.exitWith(EXIT_DIFFERENT);
    const totals = { provider: shown(sums.get(ALL)?.provider), service: shown(sums.get(ALL)?.service) };
    const margins = marginsOf(sums, perDollar);
    const rows = SUMMED.map((name) => [name, ...[totals.provider, totals.service].map((sum) => `${sum[name] ?? ""}`)]);
    const lost = margins.map((margin) => Object.values(margin).map(String));
    const text = [
      ...badLines.map(({ place, message }) => `${place} cannot be used: ${message}.`),
      ...(moreBadLines > 0 ? [`${moreBadLines} more lines cannot be used.`] : []),
      ...(cutBuckets > 0 ? [`Buckets that are only partly in the period, and are not compared: ${cutBuckets}.`] : []),
      table(["SUM", "PROVIDER", "SERVICE"], rows),
      ...(lost.length > 0 ? [table(["MODEL", "REQUESTS", "CHARGED", "COST", "MARGIN"], lost)] : []),
      `${head.from} to ${head.to}, matched by ${matchedBy}: ${both} in both, ${onlyProvider} only at the provider, ${onlyService} only in the service, ${different} different.`,
    ];
    output.end({ counts, totals, margins, badLines, moreBadLines, cutBuckets }, text.join("\n"));
    return undefined;
  },
});

function hasApi(provider: string): provider is keyof typeof APIS {
  return provider in APIS;
}

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
    const [{ Overviews }, { UsageDays }] = await Promise.all([
      import("../reports/overview.ts"),
      import("../reports/usage-days.ts"),
    ]);
    const days = new UsageDays({ rows: store.usage, books: store.books, clock, log: { warn: () => undefined } });
    const options = { rows: store.usage, refusals: store.refusals, days, clock, perDollar: () => perDollar };
    const period = { fromDay: fromDay && dayStart(fromDay), toDay: toDay && dayStart(toDay) };
    const margins = await new Overviews(options).margins({ organizationId, by, ...period });
    const rows = margins.data.map((row) => Object.values(row).map(String));
    const headings = ["MONTH", by.toUpperCase(), "REQUESTS", "CHARGED", "CHARGED WITH COST", "PROVIDER COST", "MARGIN"];
    const pending = margins.pending_days > 0 ? `\nDays that are not yet included: ${margins.pending_days}.` : "";
    return { json: { ...jsonOf(margins), data: margins.data.map(jsonOf) }, text: `${table(headings, rows)}${pending}` };
  },
});

type Values = { [Name in (typeof SUMMED)[number]]?: bigint | null };
/** The sums of each model, and of all. */
type Sums = Map<string, Record<"provider" | "service", Values>>;
const ALL = "";

function addUp(sums: Sums, { provider, service }: Pick<ComparedPair, "provider" | "service">): void {
  for (const model of [(service ?? provider)?.model ?? ALL, ALL]) {
    const sum = sums.get(model) ?? { provider: {}, service: {} };
    sums.set(model, sum);
    for (const [into, from] of [[sum.provider, provider] as const, [sum.service, service] as const]) {
      for (const name of SUMMED) if (from?.[name] != null) into[name] = (into[name] ?? 0n) + from[name];
    }
  }
}

/** Returns what the provider's records state as the cost of each model, and what was charged for it. */
function marginsOf(sums: Sums, perDollar: string) {
  return [...sums].flatMap(([model, { provider, service }]) => {
    if (model === ALL || provider.cost == null) return [];
    const { requests = null, charged } = shown(service);
    const margin = dollarText(dollarsFromMicro(service.charged ?? 0n, perDollar) - provider.cost);
    return [{ model, requests, charged: charged ?? 0, cost: dollarText(provider.cost), margin }];
  });
}

/** Returns counts and credits as numbers, dollars as an exact text, and null for what is not stated. */
function shown(values: Values = {}): Record<string, number | string | null> {
  const shownAs = (name: keyof Values, value: bigint) =>
    name === "cost" ? dollarText(value) : name === "charged" ? creditsFromMicro(value) : Number(value);
  return Object.fromEntries(SUMMED.map((name) => [name, values[name] == null ? null : shownAs(name, values[name])]));
}

function jsonOfPair({ kind, fields, provider, service }: ComparedPair) {
  const side = (entry: ComparedPair["provider"]) =>
    entry === undefined
      ? null
      : { model: entry.model, place: entry.place || null, lines: Number(entry.lines), ...shown(entry) };
  const time = isoTime(Number((provider ?? service)?.atMs));
  return { kind, time, fields, provider: side(provider), service: side(service) };
}

function textOfPair({ kind, fields, provider, service }: ComparedPair): string {
  const value = (entry: ComparedPair["provider"], name: string) => ({ ...entry, ...shown(entry) })[name as "lines"];
  const values = fields.map((name) => `${name}: provider ${value(provider, name)}, service ${value(service, name)}`);
  const { atMs, model } = service ?? provider ?? {};
  const words = [KINDS[kind], isoTime(Number(atMs)), model, provider?.place, service?.place, values.join("; ")];
  return words.filter(Boolean).join("  ");
}

const KINDS = { both: "both", onlyProvider: "only provider", onlyService: "only service ", different: "different    " };
