import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { createGunzip } from "node:zlib";
import { csvCells } from "../api/csv.ts";
import { detailsOf, isObject, type JsonObject, objectsIn, parseJson, textOf } from "../api/json.ts";
import { DAY_MS, isoTime, parseTime } from "../api/time.ts";
import { PROVIDER_COST_DIGITS, parseDecimal } from "../credits/amount.ts";
import type { Counts, ReadLine } from "../credits/provider-line.ts";
import { OperatorError } from "../errors.ts";

/** Paths of values, separated by spaces. The first of several ids counts, and the sum of several counts, less those after a `-`. */
interface Shape extends Partial<Counts<string>> {
  times: string;
  id?: string;
  model: string;
  apiKey?: string;
  /** The cost, and its currency. */
  cost?: string;
  isInCents?: boolean;
}

/** The formats of the providers' records; `docs/reconciliation.md` names their documentation. */
const SHAPES = {
  openai: {
    times: "start_time end_time",
    model: "model",
    apiKey: "api_key_id",
    requests: "num_model_requests",
    input: "input_tokens -input_cached_tokens -input_cache_write_tokens",
    cachedInput: "input_cached_tokens",
    cacheWrite: "input_cache_write_tokens",
    output: "output_tokens",
    cost: "amount.value amount.currency",
  },
  anthropic: {
    times: "starting_at ending_at",
    model: "model",
    apiKey: "api_key_id",
    requests: "requests",
    input: "uncached_input_tokens",
    cachedInput: "cache_read_input_tokens",
    cacheWrite: "cache_creation.ephemeral_5m_input_tokens cache_creation.ephemeral_1h_input_tokens",
    output: "output_tokens",
    cost: "amount currency",
    isInCents: true,
  },
  bedrock: {
    times: "timestamp",
    id: "requestMetadata.tollgate_request_id requestId",
    model: "modelId",
    input: "input.inputTokenCount",
    cachedInput: "input.cacheReadInputTokenCount",
    cacheWrite: "input.cacheWriteInputTokenCount",
    output: "output.outputTokenCount",
  },
  vertex: {
    times: "logging_time",
    id: "full_response.responseId",
    model: "model",
    input:
      "full_response.usageMetadata.promptTokenCount full_response.usageMetadata.toolUsePromptTokenCount -full_response.usageMetadata.cachedContentTokenCount",
    cachedInput: "full_response.usageMetadata.cachedContentTokenCount",
    output: "full_response.usageMetadata.candidatesTokenCount full_response.usageMetadata.thoughtsTokenCount",
  },
  csv: {
    times: "time",
    id: "id",
    model: "model",
    requests: "requests",
    input: "input",
    cachedInput: "cached_input",
    cacheWrite: "cache_write",
    output: "output",
    cost: "cost currency",
  },
} as const satisfies Record<string, Shape>;

/** The kinds of records. */
export const BOOK_KINDS = Object.keys(SHAPES) as (keyof typeof SHAPES)[];
/** The provider whose records are of a kind, as it is usually named in the configuration; null for any. */
export const usualProvider = (kind: keyof typeof SHAPES) =>
  kind === "csv" ? null : kind === "vertex" ? "google-vertex" : kind;

/** Far more than a line of a file, or a page of an API, needs. */
const BYTES_MAX = 64 * 1024 * 1024;
const PAGES_MAX = 10_000;
const DOLLARS_MAX = 1_000_000n; // The sum of many lines has 64 bits.
const SECONDS_MAX = Date.parse("9999-12-31") / 1_000;

/** The columns of a CSV file. */
export const CSV_COLUMNS: readonly string[] = Object.values(SHAPES.csv).flatMap((names) => names.split(" "));

/** Reads the file of a provider. `columns` are the headers of a CSV file by our names. Rejects with OperatorError. */
export async function* readLines(
  provider: keyof typeof SHAPES,
  file: string,
  columns: ReadonlyMap<string, string>,
): AsyncGenerator<ReadLine> {
  try {
    if (provider === "csv") yield* csvLines(file, columns);
    else if (provider === "bedrock" || provider === "vertex") yield* jsonLines(file, SHAPES[provider]);
    else {
      const pages = parseJson((await readFile(file, "utf8")).replace("\uFEFF", ""));
      if (pages === undefined) throw new OperatorError(`${file} is not JSON.`);
      yield* pagesIn(pages, provider);
    }
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${file} cannot be read: ${(error as Error).message}`, { cause: error });
  }
}

/** Yields the lines of one page of an API or a list of pages: of buckets with results, or rows. Throws OperatorError. */
function* pagesIn(pages: unknown, provider: "openai" | "anthropic"): Generator<ReadLine> {
  for (const [number, page] of [pages].flat().entries()) {
    const { data } = detailsOf(page);
    const at = `${Array.isArray(pages) ? `[${number}].` : ""}data`;
    if (!Array.isArray(data)) throw new OperatorError(`${at} is missing, which a page of the provider's API has.`);
    for (const [index, bucket] of objectsIn(data).entries()) {
      const whole = { ...detailsOf(bucket.group), ...detailsOf(bucket.usage), ...detailsOf(bucket.cost) };
      const { results = [whole] } = bucket;
      for (const [row, result] of objectsIn(results).entries()) {
        const place = `${at}[${index}]${bucket.results === undefined ? "" : `.results[${row}]`}`;
        yield lineOf(SHAPES[provider], { ...bucket, ...result }, place);
      }
    }
  }
}

async function* jsonLines(file: string, shape: Shape): AsyncGenerator<ReadLine> {
  for await (const [text, place] of textLines(file)) {
    const line = parseJson(text);
    if (!isObject(line)) yield { place, message: "it is not a JSON object" };
    // A call of Bedrock that failed is not charged.
    else if (line.errorCode === undefined) yield lineOf(shape, line, place);
  }
}

async function* csvLines(file: string, columns: ReadonlyMap<string, string>): AsyncGenerator<ReadLine> {
  let names: string[] | undefined;
  for await (const [text, place] of textLines(file)) {
    const values = csvCells(text)?.map((cell) => cell.trim());
    if (values === undefined) yield { place, message: "its quotes do not match, or it is too long" };
    else if (names === undefined) names = csvNames(values, columns);
    else if (values.length !== names.length) {
      yield { place, message: `it has ${values.length} cells, but must have ${names.length}` };
    } else {
      const row = Object.fromEntries(names.map((name, index) => [name, values[index] || undefined]));
      const { id, ...withoutId } = SHAPES.csv;
      yield lineOf(names.includes(id) ? SHAPES.csv : withoutId, { ...row, currency: row.currency ?? "USD" }, place);
    }
  }
}

/** Returns our name of each column, empty for one that is not read. */
function csvNames(headers: readonly string[], columns: ReadonlyMap<string, string>): string[] {
  const missing = [...columns.values(), columns.get("time") ?? "time"].find((header) => !headers.includes(header));
  if (missing === undefined) {
    return headers.map((header) => CSV_COLUMNS.find((name) => (columns.get(name) ?? name) === header) ?? "");
  }
  const found = `There is no column ${JSON.stringify(missing)}; the columns are: ${headers.join(", ")}.`;
  throw new OperatorError(`${found} Name them with --column, such as --column time=HEADER.`);
}

/** Yields the lines of a file that are not empty, with their places. Node's `readline` would also end a line within a JSON text, at U+2028. */
async function* textLines(file: string): AsyncGenerator<[text: string, place: string]> {
  const bytes = createReadStream(file);
  const input = file.endsWith(".gz") ? bytes.pipe(createGunzip()) : bytes;
  bytes.once("error", (error) => input.destroy(error));
  let number = 0;
  for await (const text of splitLines(input.setEncoding("utf8"))) {
    number += 1;
    if (text.trim() !== "") yield [number === 1 ? text.replace("\uFEFF", "") : text, `line ${number}`];
  }
}

async function* splitLines(texts: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of texts) {
    const [first = "", ...lines] = text.split("\n");
    rest += first;
    if (rest.length > BYTES_MAX) throw new OperatorError(`a line is longer than ${BYTES_MAX} characters.`);
    for (const line of lines) {
      yield rest.replace(/\r$/, "");
      rest = line;
    }
  }
  yield rest;
}

function lineOf(shape: Shape, from: JsonObject, place: string): ReadLine {
  try {
    const text = (paths = "") => {
      const texts = paths.split(" ").map((path) => textOf(valueAt(from, path)));
      return texts.find((one) => one !== undefined && one !== "") ?? null;
    };
    const count = (name: keyof Counts) => sumAt(from, shape[name]);
    const [first = "", last = first] = shape.times.split(" ");
    const atMs = timeAt(from, first);
    const names = { id: text(shape.id), model: text(shape.model), apiKey: text(shape.apiKey) };
    const tokens = { input: count("input"), cachedInput: count("cachedInput"), cacheWrite: count("cacheWrite") };
    const further = { output: count("output"), cost: dollarsAt(from, shape) };
    if (shape.id !== undefined && names.id === null) refuse(shape.id, undefined, "an id");
    if ((tokens.input ?? further.output ?? further.cost) === null) refuse(shape.input ?? "", undefined, "a count");
    const requests = names.id === null ? count("requests") : 1n;
    return { place, atMs, lengthMs: timeAt(from, last) - atMs, ...names, requests, ...tokens, ...further };
  } catch (error) {
    return { place, message: (error as Error).message };
  }
}

/** Follows a path. Texts on it are JSON; of the items of a list, the last one that has the rest of it counts. */
function valueAt(from: unknown, path: string): unknown {
  let values: unknown[] = [from];
  for (const name of path.split(".")) {
    const objects = values.flatMap((value) => (typeof value === "string" ? parseJson(value) : value));
    values = objects.map((value) => detailsOf(value)[name] ?? undefined).filter((value) => value !== undefined);
  }
  return values.at(-1);
}

/** Adds up the counts that are there; null if none is. 64-bit integers may be texts. */
function sumAt(from: JsonObject, paths = ""): bigint | null {
  let sum: bigint | null = null;
  for (const path of paths.split(" ")) {
    const name = path.replace("-", "");
    const value = valueAt(from, name);
    if (value === undefined) continue;
    if (!/^\d{1,12}$/.test(String(value))) refuse(name, value, "an integer, 0 or more, of at most 12 digits");
    sum = (sum ?? 0n) + (path === name ? 1n : -1n) * BigInt(String(value));
    if (sum < 0n) refuse(name, value, "a part of the tokens before it");
  }
  return sum;
}

function dollarsAt(from: JsonObject, { cost = "", isInCents = false }: Shape): bigint | null {
  const [path = "", currencyPath = ""] = cost.split(" ");
  const [value, currency] = [valueAt(from, path), valueAt(from, currencyPath)];
  if (value === undefined) return null;
  if (String(currency).toUpperCase() !== "USD") refuse(currencyPath, currency, "USD, in which costs are compared");
  const [, sign, text = ""] = /^(-?)(.*)$/.exec(String(value)) ?? [];
  const amount = parseDecimal(text, PROVIDER_COST_DIGITS - (isInCents ? 2 : 0)) ?? refuse(path, value, "a number");
  if (amount > DOLLARS_MAX * 10n ** BigInt(PROVIDER_COST_DIGITS)) refuse(path, value, `at most ${DOLLARS_MAX} dollars`);
  return sign === "-" ? -amount : amount;
}

/** Returns a time; seconds since 1970 are numbers. A text without a time zone is refused, because it could be any. */
function timeAt(from: JsonObject, path: string): number {
  const value = valueAt(from, path);
  if (typeof value === "number" && value >= 0 && value <= SECONDS_MAX) return Math.floor(value * 1_000);
  const text = String(value)
    .replace(/^(\S+) (\S+) UTC$/, "$1T$2Z")
    .replace(/(\.\d{3})\d+/, "$1");
  return parseTime(text) ?? refuse(path, value, "a time with its time zone, such as 2026-10-31T18:00:00Z, or a day");
}

function refuse(path: string, found: unknown, allowed: string): never {
  const text = found === undefined ? "missing" : JSON.stringify(found).slice(0, 60);
  throw new OperatorError(`${path} is ${text}, but must be ${allowed}`);
}

/** The APIs of usage and of costs: a paged GET with the key of an administrator, which is in a variable. */
export const APIS = {
  openai: {
    url: "https://api.openai.com/v1/organization",
    usage: "usage/completions?group_by=model",
    costs: "costs?",
    variable: "OPENAI_ADMIN_KEY",
    byKey: "group_by=api_key_id",
    headers: (key: string) => ({ authorization: `Bearer ${key}` }),
    times: (fromMs: number, toMs: number) => `start_time=${fromMs / 1_000}&end_time=${toMs / 1_000}`,
  },
  anthropic: {
    url: "https://api.anthropic.com/v1/organizations",
    usage: "usage_report/messages?group_by[]=model",
    costs: "cost_report?group_by[]=description",
    variable: "ANTHROPIC_ADMIN_KEY",
    byKey: "group_by[]=api_key_id",
    headers: (key: string) => ({ "x-api-key": key, "anthropic-version": "2023-06-01" }),
    times: (fromMs: number, toMs: number) => `starting_at=${isoTime(fromMs)}&ending_at=${isoTime(toMs)}`,
  },
} as const;

export interface FetchOptions {
  fromMs: number;
  toMs: number;
  /** An hour or a day. */
  bucketMs: number;
  /** True for the costs by day instead of the usage. */
  costs: boolean;
  /** True for lines of each key of the provider. */
  byKey: boolean;
  /** Null: that of the provider. */
  apiUrl: string | null;
}

/** Yields the lines of all pages. Rejects with OperatorError. */
export async function* fetchLines(provider: keyof typeof APIS, key: string, options: FetchOptions) {
  const { fromMs, toMs, bucketMs, costs, byKey, apiUrl } = options;
  const api = APIS[provider];
  const width = costs || bucketMs === DAY_MS ? "bucket_width=1d&limit=31" : "bucket_width=1h&limit=168";
  const usage = byKey ? `${api.usage}&${api.byKey}` : api.usage;
  const query = `${costs ? api.costs : usage}&${width}&${api.times(fromMs, toMs)}`;
  for (let page: string | undefined, pages = 0; pages < PAGES_MAX; pages += 1) {
    const url = `${apiUrl ?? api.url}/${query}${page === undefined ? "" : `&page=${encodeURIComponent(page)}`}`;
    const request = { headers: api.headers(key), redirect: "error", signal: AbortSignal.timeout(60_000) } as const;
    const [status, text] = await fetch(url, request)
      .then(async (answer) => [answer.status, await textWithin(answer)] as const)
      .catch((cause) => {
        throw new OperatorError(`The API of ${provider} cannot be reached: ${cause.cause?.message ?? cause.message}`);
      });
    if (status !== 200) throw new OperatorError(`The API of ${provider} answered with ${status}.`);
    const document = detailsOf(parseJson(text));
    yield* pagesIn(document, provider);
    page = textOf(document.next_page);
    if (document.has_more !== true || page === undefined) return;
  }
  throw new OperatorError(`The API of ${provider} has more than ${PAGES_MAX} pages. Name a shorter period.`);
}

async function textWithin({ body }: Response): Promise<string> {
  let text = "";
  for await (const part of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += part;
    if (text.length > BYTES_MAX) throw new Error(`its answer is larger than ${BYTES_MAX} bytes`);
  }
  return text;
}
