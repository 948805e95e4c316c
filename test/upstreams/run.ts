import { isDeepStrictEqual } from "node:util";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { compileCheck, ErrorEnvelope } from "../../src/api/validation.ts";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  send,
  startProcess,
} from "../support/service.ts";
import type { Counted } from "../wires/fixture.ts";
import { FIXTURES } from "../wires/fixtures.ts";
import { type Case, MODES, type Mode, modesOf, type Outcome } from "./cases.ts";
import { type Growth, growthBytes, keptBytes, TELLS_ITS_MEMORY } from "./memory.ts";
import { REPORTED } from "./scripts.ts";
import { modelOf, OTHER_WIRES, providerAt, startServers, TIMEOUT_MS } from "./servers.ts";
import { casesOf, NAMES, OWN_KIND, reasonAgainst } from "./wire-cases.ts";

/** Longest wait of a caller for the end of a silent upstream, on a machine that is not busy. */
export const WAITS_MS_MAX = TIMEOUT_MS + 1_000;
const HANGS_AFTER_MS = 170_000;
const PROMPT = "go";
/** The estimate of that prompt: a token for its bytes, four for the message, three for the whole. */
const PROMPT_TOKENS = 8;
/** The bound of that prompt: its bytes, and the most that a template adds to a message and to a prompt. */
const PROMPT_TOKENS_MAX = 2 + 8 + 256;
/** More than any fixture reports. */
const OUTPUT_TOKENS_MAX = 50;
/** The kinds of provider that packages speak for. */
export const OTHER_KINDS = OTHER_WIRES.map(({ kind }) => kind);
/** A credit a token. */
const PRICE = { input: 1_000_000, output: 1_000_000 };

/** Result of one request. */
export interface Met {
  name: string;
  kind: string;
  mode: Mode;
  outcome: Outcome;
  tookMs: number;
}

interface Answer {
  requestId: string;
  status: number;
  text: string;
  tookMs: number;
}

interface Charge {
  requestId: string;
  amount: number;
  tokens: Record<string, number>;
  basis: string;
  ending: string;
}

/** A service whose upstreams misbehave, each of its models in one way of the cases. */
export interface Bench {
  service: ServiceProcess;
  /** Sends a request for each case and mode, and gives what the clients, the books and the clock have to say to it. */
  run(kinds: readonly string[]): Promise<Met[]>;
  /** Sends as many requests at once for streams of a case, to the kinds in turn, and gives the most that the service's memory grew by meanwhile, in bytes. */
  growth(kinds: readonly string[], name: string, count: number): Promise<Growth>;
  /** Sends as many and reads none of the answers; gives what the service keeps of each then, in bytes. */
  kept(kinds: readonly string[], name: string, count: number): Promise<number>;
  end(): Promise<void>;
}

export async function startBench(): Promise<Bench> {
  const servers = await startServers();
  const service = await startProcess({
    environment: TELLS_ITS_MEMORY,
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 },
      providers: servers.providers,
      models: [OWN_KIND, ...OTHER_KINDS].flatMap((kind) =>
        casesOf(kind).map(({ at }, index) => {
          const model = modelOf(kind, index);
          return { id: model, price: PRICE, routes: [{ provider: providerAt(kind, at), model }] };
        }),
      ),
    },
  });
  const organization = await makeOrganization(service, "1000000000");
  const asking = { service, organization };
  return {
    service,
    growth: (kinds, name, count) => growthBytes(service, streams(asking, kinds, name, count)),
    kept: (kinds, name, count) => keptBytes(service, streams(asking, kinds, name, count), servers.sentBytes),
    run: (kinds) => run(asking, kinds),
    end: async () => {
      await service.end();
      await servers.end();
    },
  };
}

interface Asking {
  service: ServiceProcess;
  organization: Organization;
}

async function ask(asking: Asking, model: string, mode: Mode): Promise<Answer> {
  const startedMs = performance.now();
  const answer = await begin(asking, model, mode);
  const text = await answer.text();
  const requestId = answer.headers.get("x-request-id") ?? "";
  return { requestId, status: answer.status, text, tookMs: performance.now() - startedMs };
}

function begin({ service, organization }: Asking, model: string, mode: Mode): Promise<Response> {
  const body = {
    model,
    messages: [{ role: "user", content: PROMPT }],
    max_tokens: OUTPUT_TOKENS_MAX,
    stream: mode === "streamed",
  };
  const options = { signal: AbortSignal.timeout(HANGS_AFTER_MS) };
  return send(service, "/v1/chat/completions", organization.token, body, options);
}

/** Returns functions that request streams of a case. */
function streams(asking: Asking, kinds: readonly string[], name: string, count: number): (() => Promise<Response>)[] {
  return Array.from({ length: count }, (_none, turn) => {
    const kind = kinds[turn % kinds.length] ?? "";
    const index = casesOf(kind).findIndex((one) => one.name === name);
    return () => begin(asking, modelOf(kind, index), "streamed");
  });
}

/** All kinds, streamed and not, meet a case at once; one case follows another. */
async function run(asking: Asking, kinds: readonly string[]): Promise<Met[]> {
  const asked: { one: Case; kind: string; mode: Mode; answer: Answer }[] = [];
  for (const name of NAMES) {
    const answers = kinds.flatMap((kind) => {
      const index = casesOf(kind).findIndex((one) => one.name === name);
      const one = casesOf(kind)[index];
      if (one === undefined) return [];
      return modesOf(one).map(async (mode) => ({
        one,
        kind,
        mode,
        answer: await ask(asking, modelOf(kind, index), mode),
      }));
    });
    asked.push(...(await Promise.all(answers)));
  }
  const { service, organization } = asking;
  const words = ["credits", "statement", "--org", organization.id];
  const { entries } = await service.tollgate<{ entries: Charge[] }>(...words);
  const charges = new Map(entries.map((entry) => [entry.requestId, entry]));
  return asked.map(({ one, kind, mode, answer }) => {
    const met = { name: one.name, kind, mode, tookMs: answer.tookMs };
    try {
      return { ...met, outcome: outcomeOf(answer, kind, mode, charges.get(answer.requestId)) };
    } catch (error) {
      return { ...met, outcome: `wrong: ${error instanceof Error ? error.message : error}` };
    }
  });
}

/** Describes the result of a request, after a check of its form and its charge. */
function outcomeOf({ status, text }: Answer, kind: string, mode: Mode, charge: Charge | undefined): Outcome {
  if (status !== 200) {
    const code = errorCode(JSON.parse(text), status);
    if (charge !== undefined) throw new Error(`${code} was charged ${charge.amount}`);
    return `${status} \`${code}\`, nothing charged`;
  }
  const received = mode === "streamed" ? receivedStream(text) : receivedDocument(text);
  if (charge === undefined) {
    if (received.code === undefined || received.pieces.length > 0) {
      throw new Error(`Nothing was charged for ${text.slice(0, 200)}`);
    }
    return `nothing, then \`${received.code}\`, nothing charged`;
  }
  if (-charge.amount !== Object.values(charge.tokens).reduce((sum, count) => sum + count, 0)) {
    throw new Error(`${charge.amount} credits for ${JSON.stringify(charge.tokens)}`);
  }
  if (received.code === undefined) return wholeOutcome(received, kind, charge);
  const isCounted = charge.basis === "counted" && charge.ending !== "complete";
  if (!isCounted || charge.tokens.input !== PROMPT_TOKENS || charge.tokens.output !== countOf(received.pieces)) {
    throw new Error(`A stream that broke off was charged ${JSON.stringify(charge)}`);
  }
  return `${amountOf(received.pieces)}, then \`${received.code}\`, charged the input and what was sent`;
}

interface Received {
  pieces: string[];
  usage: { prompt_tokens: number; completion_tokens: number } | undefined;
  /** Code of the error that ended it. */
  code: ErrorCode | undefined;
}

function receivedStream(text: string): Received {
  const events = eventsOf(text);
  const isDone = events.at(-1) === "[DONE]";
  const parsed = (isDone ? events.slice(0, -1) : events).map((event) => JSON.parse(event));
  const code = isDone ? undefined : errorCode(parsed.pop());
  const deltas = parsed.map((event) => {
    if (event.object !== "chat.completion.chunk") throw new Error(`An event of another kind: ${JSON.stringify(event)}`);
    return event.choices[0]?.delta.content;
  });
  return { pieces: deltas.filter(Boolean), usage: parsed.at(-1)?.usage, code };
}

function receivedDocument(text: string): Received {
  const { choices, usage } = JSON.parse(text);
  return { pieces: [choices[0].message.content], usage, code: undefined };
}

function wholeOutcome({ pieces, usage }: Received, kind: string, { basis, ending, tokens }: Charge): Outcome {
  const text = pieces.join("");
  const said = /^(a|é😀|\uFFFD)$|^(Hello |é😀|\uFFFD)from far away\.$/;
  if (!said.test(text)) throw new Error(`Received ${text.slice(0, 80)}`);
  const counted = { prompt_tokens: PROMPT_TOKENS, completion_tokens: countOf(pieces) };
  const bounded = basis === "bounded" ? boundedCounts(tokens) : undefined;
  const counts = basis === "reported" ? reportedBy(kind) : (bounded ?? counted);
  if ((bounded === undefined && !isDeepStrictEqual(tokens, classesOf(counts))) || ending !== "complete") {
    throw new Error(`A whole answer was charged ${JSON.stringify({ basis, ending, tokens })}`);
  }
  if (usage?.prompt_tokens !== counts.prompt_tokens || usage.completion_tokens !== counts.completion_tokens) {
    throw new Error(`A complete answer reported the usage ${JSON.stringify(usage)}`);
  }
  return `the answer${text.startsWith("\uFFFD") ? ", with replacement characters" : ""}, charged as ${basis}`;
}

/** The tokens of a charge by whole classes, where the prompt is at its bound and the answer at most at its own. */
function boundedCounts(tokens: Charge["tokens"]): { prompt_tokens: number; completion_tokens: number } | undefined {
  const { input = 0, cached_input = 0, cache_write = 0, output = 0, reasoning = 0 } = tokens;
  const counts = { prompt_tokens: input + cached_input + cache_write, completion_tokens: output + reasoning };
  const isAtBound = counts.prompt_tokens === PROMPT_TOKENS_MAX && counts.completion_tokens <= OUTPUT_TOKENS_MAX;
  return isAtBound ? counts : undefined;
}

/** Usage that the upstreams of a kind report for an answer, if they report a possible one. */
function reportedBy(kind: string): Counted {
  const fixture = FIXTURES.find((one) => one.kind === kind);
  if (fixture === undefined) throw new Error(`There is no wire of ${kind}`);
  return kind === OWN_KIND ? REPORTED : fixture.text.usage;
}

/** Every token in its class and in no other. */
function classesOf(counts: Counted): Record<string, number> {
  const {
    cached_tokens: cached_input = 0,
    cache_write_tokens: cache_write = 0,
    reasoning_tokens: reasoning = 0,
  } = counts;
  const input = counts.prompt_tokens - cached_input - cache_write;
  return { input, cached_input, cache_write, output: counts.completion_tokens - reasoning, reasoning };
}

/** Tokens of a text by the rule of the guide: those of the tokenizer, at most `max_tokens`. */
function countOf(pieces: string[]): number {
  // The tokenizer takes seconds for a long run of one letter; its first part has more tokens than the bound already.
  return Math.min(OUTPUT_TOKENS_MAX, countTokens(pieces.join("").slice(0, 1_000)));
}

function amountOf(pieces: string[]): string {
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (bytes > 16 * 1024 * 1024) throw new Error(`${bytes} bytes of a stream without end were sent on`);
  if (pieces.length > 9) return "at most 16 MiB";
  return pieces.length === 0 ? "nothing" : pieces.length === 1 ? "a piece" : `${pieces.length} pieces`;
}

const envelopeIssue = compileCheck(ErrorEnvelope);

/** The code of an error that is well formed, and as the catalog has it. */
function errorCode(envelope: unknown, status?: number): ErrorCode {
  const issue = envelopeIssue(envelope);
  const { code, type } = (envelope as ErrorEnvelope).error;
  const row = errorCatalog[code as ErrorCode];
  if (issue !== undefined || row?.type !== type || (status !== undefined && row.status !== status)) {
    throw new Error(`This error is not as it should be: ${status} ${JSON.stringify(envelope)}`);
  }
  return code as ErrorCode;
}

/** The table of `docs/upstream-faults.md`. */
export function tableRows(met: readonly Met[]): string[][] {
  return NAMES.map((name) => {
    const own = outcomesOf(met, OWN_KIND, name);
    return [name, own.streamed ?? "–", own.unstreamed ?? "–", outcomesOfOthers(met, name, own)];
  });
}

type Outcomes = Partial<Record<Mode, Outcome>>;

function outcomesOf(met: readonly Met[], kind: string, name: string): Outcomes {
  const found = met.filter((one) => one.name === name && one.kind === kind);
  return Object.fromEntries(found.map(({ mode, outcome }) => [mode, outcome]));
}

/** Describes the results on the protocols of other kinds, grouped by result; kinds without such a case are omitted. */
function outcomesOfOthers(met: readonly Met[], name: string, own: Outcomes): string {
  const kindsOf = Map.groupBy(
    OTHER_KINDS,
    (kind) => reasonAgainst(kind, name) ?? differences(outcomesOf(met, kind, name), own),
  );
  const same = kindsOf.has(THE_SAME) ? [THE_SAME] : [];
  kindsOf.delete(THE_SAME);
  kindsOf.delete("");
  return [...same, ...[...kindsOf].map(([outcomes, kinds]) => `${kinds.join(", ")}: ${outcomes}`)].join("; ");
}

const THE_SAME = "the same";

function differences(outcomes: Outcomes, own: Outcomes): string {
  const differing = MODES.filter((mode) => outcomes[mode] !== undefined && outcomes[mode] !== own[mode]);
  if (differing.length === 0) return Object.keys(outcomes).length === 0 ? "" : THE_SAME;
  if (new Set(differing.map((mode) => outcomes[mode])).size === 1 && differing.length === MODES.length) {
    return outcomes.streamed ?? "";
  }
  return differing.map((mode) => `${mode} ${outcomes[mode]}`).join(", ");
}
