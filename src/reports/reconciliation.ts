import { DAY_MS, HOUR_MS } from "../api/time.ts";
import { PROVIDER_COST_DIGITS, parseDecimal } from "../credits/amount.ts";
import { type BadLine, COUNTED, type Counts, type ReadLine } from "../credits/provider-line.ts";
import { OperatorError } from "../errors.ts";
import type { ListedRequest } from "../stores/queries/requests.ts";
import type { Pair, SideBySide, SideEntry } from "../stores/queries/side-by-side.ts";

export interface CompareOptions {
  lines: AsyncIterable<ReadLine>;
  requests(fromMs: number, toMs: number): AsyncIterable<ListedRequest[]>;
  sides: SideBySide;
  /** The provider in the configuration. */
  providerId: string;
  /** Only lines of this key of the provider are compared; null: all. */
  apiKey: string | null;
  /** Null: where the lines begin, and end. */
  fromMs: number | null;
  toMs: number | null;
  /** Length of the buckets of lines that have none. */
  bucketMs: number;
  /** Our names of models by those of the provider, where they differ by more than the date of a snapshot. */
  names: ReadonlyMap<string, string>;
}

/** A request or a bucket, and the names of what differs. */
export interface ComparedPair extends Pair {
  kind: "both" | "onlyProvider" | "onlyService" | "different";
  fields: readonly string[];
}

/** A provider logs a request later than it began. */
const AROUND_MS = HOUR_MS;
const BAD_LINES_MAX = 100;
/** Costs of a request that differ by no more than a millionth of a dollar are rounded differently. */
const COST_TOLERANCE = parseDecimal("0.000001", PROVIDER_COST_DIGITS) ?? 0n;
const NONE: Counts<bigint> = { requests: 0n, input: 0n, cachedInput: 0n, cacheWrite: 0n, output: 0n };
const ALL_MODELS = "*";
/** The date of a snapshot: providers report it where requests named the model only. */
const SNAPSHOT = /[-@](\d{8}|\d{4}-\d{2}-\d{2})$/;

/** Reads the books of both sides. Nothing is written but the temporary file of `sides`. Rejects with OperatorError. */
export async function compareBooks(options: CompareOptions) {
  const { sides } = options;
  const theirs = await readLinesOf(options);
  const { fromMs, toMs, hasIds } = theirs;
  const aroundMs = hasIds ? AROUND_MS : theirs.bucketMs;
  for await (const page of options.requests(fromMs - aroundMs, toMs + aroundMs)) {
    for (const request of page) {
      const entry = entryOf(request, options.providerId);
      if (entry === undefined) continue;
      if (hasIds) addRequest(sides, request, entry);
      else addToBuckets(sides, request, theirs.hasModels ? entry : { ...entry, model: ALL_MODELS }, theirs);
    }
  }
  const isWanted = ({ provider, service }: Pair) =>
    [provider, service].some((entry) => entry !== undefined && entry.atMs >= fromMs && entry.atMs < toMs);
  const { badLines, moreBadLines, cut } = theirs;
  return {
    ...{ fromMs, toMs, matchedBy: hasIds ? "id" : "bucket", badLines, moreBadLines, cutBuckets: cut.size },
    *outcomes(): Generator<ComparedPair> {
      for (const pair of sides.pairs()) {
        const outcome = isWanted(pair) ? outcomeOf(pair, hasIds) : undefined;
        if (outcome !== undefined) yield outcome;
      }
    },
  };
}

type Theirs = Awaited<ReturnType<typeof readLinesOf>>;

async function readLinesOf({ lines, sides, apiKey, names, ...options }: CompareOptions) {
  const found = { hasIds: false, hasModels: false, hasKeys: false, moreBadLines: 0, bucketMs: 0 };
  const [badLines, cut]: [BadLine[], Set<number>] = [[], new Set()];
  let [firstMs, lastMs] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for await (const line of lines) {
    if ("message" in line) {
      if (badLines.push(line) > BAD_LINES_MAX) found.moreBadLines += badLines.splice(BAD_LINES_MAX).length;
      continue;
    }
    const { id, atMs } = line;
    found.hasIds ||= id !== null;
    // Buckets have one length: a minute, an hour or a day.
    const lengthMs = line.lengthMs || options.bucketMs;
    found.bucketMs ||= [60_000, HOUR_MS].find((length) => lengthMs <= length) ?? DAY_MS;
    const bucketAtMs = bucketStart(atMs, found.bucketMs);
    const [fromMs, toMs] = [options.fromMs ?? bucketAtMs, options.toMs ?? Number.POSITIVE_INFINITY];
    const isCut = bucketAtMs < fromMs || bucketAtMs + found.bucketMs > toMs;
    if (id === null && (isCut || line.lengthMs % found.bucketMs !== 0 || line.lengthMs > found.bucketMs)) {
      cut.add(bucketAtMs);
      continue;
    }
    firstMs = Math.min(firstMs, id === null ? bucketAtMs : atMs);
    lastMs = Math.max(lastMs, id === null ? bucketAtMs + found.bucketMs : atMs + 1);
    found.hasKeys ||= line.apiKey !== null;
    if (apiKey !== null && line.apiKey !== apiKey) continue;
    found.hasModels ||= line.model !== null;
    const model = line.model === null ? ALL_MODELS : (names.get(line.model) ?? line.model).replace(SNAPSHOT, "");
    const entry = { ...line, atMs: id === null ? bucketAtMs : atMs, model, charged: null };
    sides.add("provider", id ?? bucketKey(bucketAtMs, model), entry);
  }
  const { fromMs, toMs } = { fromMs: options.fromMs ?? firstMs, toMs: options.toMs ?? lastMs };
  if (!(fromMs < toMs)) throw new OperatorError("Nothing to compare: none of the provider's lines can be used.");
  if (apiKey !== null && !found.hasKeys && Number.isFinite(firstMs)) {
    throw new OperatorError("--key cannot be applied: no line of the provider names the key that it is for.");
  }
  return { ...found, bucketMs: found.bucketMs || options.bucketMs, fromMs, toMs, badLines, cut };
}

const bucketStart = (atMs: number, bucketMs: number) => Math.floor(atMs / bucketMs) * bucketMs;
const bucketKey = (atMs: number, model: string) => `${String(atMs).padStart(15, "0")} ${model}`;

/** Returns the entry of a request; undefined for one of another provider. */
function entryOf(request: ListedRequest, providerId: string): SideEntry | undefined {
  const { facts, tokens, charged, madeAtMs: atMs, trace, end, events } = request;
  if (!facts.upstream.startsWith(`${providerId}/`)) return undefined;
  const cost = trace?.providerCost ?? null;
  return {
    ...{ atMs, model: facts.upstream.slice(providerId.length + 1).replace(SNAPSHOT, ""), charged },
    place: [`request ${facts.holdId}`, end, events.at(-1)?.basis].filter(Boolean).join(", "),
    requests: end === "released" ? 0n : 1n,
    ...{ input: BigInt(tokens.input), cachedInput: BigInt(tokens.cachedInput), cacheWrite: BigInt(tokens.cacheWrite) },
    output: BigInt(tokens.output + tokens.reasoning),
    cost: cost === null ? null : (parseDecimal(cost, PROVIDER_COST_DIGITS) ?? null),
  };
}

/** Adds a request under the id by which the provider's records name it. A failed one is only compared if they do. */
function addRequest(sides: SideBySide, { facts, trace }: ListedRequest, entry: SideEntry): void {
  const known = [facts.requestId, facts.holdId, trace?.providerResponseId ?? ""].find((id) => sides.has(id));
  if (known !== undefined || entry.requests === 1n) sides.add("service", known ?? facts.requestId, entry);
}

/** Adds a request to the bucket in which it began. If it ended in another one, a provider may count it there. */
function addToBuckets(
  sides: SideBySide,
  request: ListedRequest,
  entry: SideEntry,
  { bucketMs, toMs, cut }: Theirs,
): void {
  const began = bucketStart(Number(entry.atMs), bucketMs);
  const ended = bucketStart(request.endedAtMs ?? 0, bucketMs);
  const add = (side: "service" | "edge", atMs: number, counts: Counts) => {
    if (cut.has(atMs) || atMs + bucketMs > toMs) return;
    sides.add(side, bucketKey(atMs, entry.model), { ...entry, ...counts, atMs, place: "" });
  };
  add("service", began, entry);
  // A provider may count a failed request.
  if (request.end === "released") add("edge", began, { ...NONE, requests: 1n });
  if (ended !== began) for (const atMs of [began, ended]) add("edge", atMs, entry);
}

/** Returns undefined where neither side has anything. */
function outcomeOf(pair: Pair, hasIds: boolean): ComparedPair | undefined {
  const { provider, service, edge } = pair;
  const isFar = (theirs: bigint | null, ours: bigint | null, tolerance: bigint) => {
    if (theirs === null || ours === null) return false;
    return theirs - ours > tolerance || ours - theirs > tolerance;
  };
  const fields: string[] = COUNTED.filter((name) =>
    isFar((provider ?? NONE)[name], (service ?? NONE)[name], edge?.[name] ?? 0n),
  );
  if (provider === undefined) return fields.length > 0 ? { ...pair, kind: "onlyService", fields: [] } : undefined;
  if (service === undefined)
    return { ...pair, kind: fields.length > 0 || provider.cost ? "onlyProvider" : "both", fields: [] };
  if (isFar(provider.cost, service.cost, COST_TOLERANCE * service.lines)) fields.push("cost");
  if (hasIds && provider.model !== ALL_MODELS && !provider.model.includes(service.model)) fields.push("model");
  if (hasIds && provider.lines > 1n) fields.push("lines");
  return { ...pair, kind: fields.length > 0 ? "different" : "both", fields };
}
