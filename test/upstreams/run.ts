import { readFileSync } from "node:fs";
import { ErrorEnvelope } from "../../src/contract/error.ts";
import { compileCheck } from "../../src/contract/validation.ts";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { CASES, CASES_OF_ANY_WIRE, type Case, type Outcome } from "./cases.ts";
import { REPORTED } from "./scripts.ts";
import { OTHER_WIRES, OWN_KIND, providerAt, startServers, TIMEOUT_MS } from "./servers.ts";

/** What a caller waits at the most for the end of an upstream that has gone silent, on a machine that is not busy. */
export const WAITS_MS_MAX = TIMEOUT_MS + 1_000;
const HANGS_AFTER_MS = 20_000;
const PROMPT = "go";
/** The estimate of that prompt: a token for its bytes, four for the message, three for the whole. */
const PROMPT_TOKENS = 8;
/** The kinds of provider that packages speak for. */
export const OTHER_KINDS = OTHER_WIRES.map(({ kind }) => kind);
const casesOf = (kind: string) => (kind === OWN_KIND ? CASES : CASES_OF_ANY_WIRE);
const modelOf = (kind: string, index: number) => `case-${index}-of-${kind}`;
/** A credit a token. */
const PRICE = { input: 1_000_000, output: 1_000_000 };

export const MODES = ["streamed", "unstreamed"] as const;
type Mode = (typeof MODES)[number];

/** What one request met. */
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
  credits: number;
  tokens: Record<string, number>;
  basis: string;
  end: string;
}

/** A service whose upstreams misbehave, each of its models in one way of the cases. */
export interface Bench {
  service: RunningService;
  /** Sends a request for each case and mode, and gives what the clients, the books and the clock have to say to it. */
  run(kinds: readonly string[]): Promise<Met[]>;
  /** Sends as many requests at once for a case, and gives the most that the service's memory grew by meanwhile, in bytes. */
  growth(name: string, mode: Mode, count: number): Promise<number>;
  end(): Promise<void>;
}

export async function startBench(): Promise<Bench> {
  const servers = await startServers();
  const service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 },
      providers: servers.providers,
      models: [OWN_KIND, ...OTHER_KINDS].flatMap((kind) =>
        [...CASES.entries()]
          .filter(([, one]) => casesOf(kind).includes(one))
          .map(([index, { at }]) => ({
            id: modelOf(kind, index),
            price: PRICE,
            routes: [{ provider: providerAt(kind, at), model: `case-${index}` }],
          })),
      ),
    },
  });
  const organization = await makeOrganization(service, "1000000000");
  const asking = { service, organization };
  return {
    service,
    growth: (name, mode, count) => growth(asking, name, mode, count),
    run: (kinds) => run(asking, kinds),
    end: async () => {
      await service.end();
      await servers.end();
    },
  };
}

interface Asking {
  service: RunningService;
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
    max_tokens: 10,
    stream: mode === "streamed",
  };
  const options = { signal: AbortSignal.timeout(HANGS_AFTER_MS) };
  return send(service, "/v1/chat/completions", organization.token, body, options);
}

async function growth(asking: Asking, name: string, mode: Mode, count: number): Promise<number> {
  const model = modelOf(
    OWN_KIND,
    CASES.findIndex((one) => one.name === name),
  );
  const before = residentBytes(asking.service);
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, residentBytes(asking.service));
  }, 5);
  const read = async () => {
    const answer = await begin(asking, model, mode);
    if (answer.body !== null) for await (const _bytes of answer.body);
  };
  await Promise.all(Array.from({ length: count }, read));
  clearInterval(sampling);
  return most - before;
}

/** Of the service's process (proc(5), VmRSS). */
function residentBytes({ child }: RunningService): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return Number(/VmRSS\D+(\d+) kB/.exec(status)?.[1]) * 1024;
}

/** All kinds, streamed and not, meet a case at once; one case follows another. */
async function run(asking: Asking, kinds: readonly string[]): Promise<Met[]> {
  const asked: { one: Case; kind: string; mode: Mode; answer: Answer }[] = [];
  for (const [index, one] of CASES.entries()) {
    const pairs = MODES.flatMap((mode) =>
      kinds.filter((kind) => casesOf(kind).includes(one)).map((kind) => ({ kind, mode })),
    );
    const answers = pairs.map(async ({ kind, mode }) => {
      return { one, kind, mode, answer: await ask(asking, modelOf(kind, index), mode) };
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
      return { ...met, outcome: outcomeOf(answer, mode, charges.get(answer.requestId)) };
    } catch (error) {
      return { ...met, outcome: `wrong: ${error instanceof Error ? error.message : error}` };
    }
  });
}

/** What a request came to in words, after everything that was received is found to be well formed and charged by the rule. */
function outcomeOf({ status, text }: Answer, mode: Mode, charge: Charge | undefined): Outcome {
  if (status !== 200) {
    const code = errorCode(JSON.parse(text), status);
    if (charge !== undefined) throw new Error(`${code} was charged ${charge.credits}`);
    return `${status} \`${code}\`, nothing charged`;
  }
  if (charge === undefined) throw new Error(`Nothing was charged for ${text.slice(0, 200)}`);
  const received = mode === "streamed" ? receivedStream(text) : receivedDocument(text);
  if (-charge.credits !== Object.values(charge.tokens).reduce((sum, count) => sum + count, 0)) {
    throw new Error(`${charge.credits} credits for ${JSON.stringify(charge.tokens)}`);
  }
  if (received.code === undefined) return wholeOutcome(received, charge);
  const isCounted = charge.basis === "counted" && charge.end !== "complete";
  if (!isCounted || charge.tokens.input !== PROMPT_TOKENS || charge.tokens.output !== countOf(received.pieces)) {
    throw new Error(`A stream that broke off was charged ${JSON.stringify(charge)}`);
  }
  return `${amountOf(received.pieces)}, then \`${received.code}\`, charged the input and what was sent`;
}

interface Received {
  pieces: string[];
  usage: { prompt_tokens: number; completion_tokens: number } | undefined;
  /** Of the error that ended it. */
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

function wholeOutcome({ pieces, usage }: Received, { basis, end, tokens }: Charge): Outcome {
  const text = pieces.join("");
  if (!["a", "é😀", "\uFFFD"].includes(text)) throw new Error(`Received ${text.slice(0, 80)}`);
  const reported = { input: REPORTED.prompt_tokens, output: REPORTED.completion_tokens };
  const counted = { input: PROMPT_TOKENS, output: countOf(pieces) };
  const { input, output } = basis === "reported" ? reported : counted;
  if (tokens.input !== input || tokens.output !== output || end !== "complete") {
    throw new Error(`A whole answer was charged ${JSON.stringify({ basis, end, tokens })}`);
  }
  if (usage?.prompt_tokens !== input || usage.completion_tokens !== output) {
    throw new Error(`A whole answer told the usage ${JSON.stringify(usage)}`);
  }
  return `the answer${text === "\uFFFD" ? ", with replacement characters" : ""}, charged as ${basis}`;
}

/** Tokens of pieces by the rule of the guide: a short piece is one, a long one a token for each four bytes. */
function countOf(pieces: string[]): number {
  const lengths = pieces.map((piece) => Buffer.byteLength(piece));
  return lengths.reduce((sum, length) => sum + (length <= 12 ? 1 : Math.ceil(length / 4)), 0);
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

/** The table of `docs/reliability.md`. */
export function tableRows(met: readonly Met[]): string[][] {
  return CASES.map(({ name }) => {
    const of = (mode: Mode) =>
      met.find((one) => one.name === name && one.mode === mode && one.kind === OWN_KIND)?.outcome ?? "";
    return [name, of("streamed"), of("unstreamed")];
  });
}
