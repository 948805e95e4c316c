import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { once } from "../api/answer.ts";
import type { EmbeddingInput } from "../api/embeddings/request.ts";
import { fitFields, passing } from "./fields.ts";
import {
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type TaskCall,
  type UpstreamChunk,
  UpstreamError,
  type UpstreamRequest,
  unlessRefused,
} from "./provider.ts";
import { type Fault, readFault } from "./sandbox/fault.ts";
import { SANDBOX_TASK_MODELS, SANDBOX_TASKS } from "./sandbox/media.ts";
import { checkSchema, type Script, toRefusal, toScript } from "./sandbox/script.ts";
import { countPromptTokens, countTokens, lastUserText, story, textTokens } from "./sandbox/text.ts";
import type { Environment, ProviderSettings, ProviderTimeouts } from "./settings.ts";

/** Pieces in one item of the answer. The event loop serves other requests between items. */
const PIECES_A_BATCH = 128;
const FAULT_TOKENS = 10;
const NO_FAULT = { events: [] };
const FIELDS = passing("n");
const MODELS = ["echo", "story", "fault"] as const;

/**
 * Creates the provider of the sandbox models: deterministic, without a network, with correct usage. `echo` answers with the
 * last user message, `story` writes until `max_tokens`, and `fault` simulates the faults that its message names
 * (sandbox/fault.ts). All three call tools and follow a `response_format` (sandbox/script.ts).
 */
export function createSandbox({ id, timeouts }: ProviderSettings, _environment: Environment): Provider {
  return {
    id,
    isScripted: true,
    convert: (request) =>
      unlessRefused(() => {
        const fitted = fitFields(request, FIELDS);
        checkSchema(request);
        return fitted;
      }),
    complete: async (call) => {
      const { request, ignored } = fitFields(call.request, FIELDS);
      return { ...(await complete({ ...call, request }, timeouts)), ignored };
    },
    tasks: { ...SANDBOX_TASKS, embedding: embedInSandbox },
    takesTokenIds: true,
    listModels: async () => [...MODELS, EMBEDDING_MODEL, ...SANDBOX_TASK_MODELS],
    close: async () => {},
  };
}

async function complete({ request, signal }: ProviderCall, timeouts: ProviderTimeouts): Promise<ProviderAnswer> {
  signal.throwIfAborted();
  if (request.model !== "fault") return { chunks: perform(request, scriptsOf(request, scriptOf), NO_FAULT, signal, 0) };
  const fault = readFault(lastUserText(request.messages));
  await wait(fault.delayMs, timeouts.firstByteMs, signal);
  if (fault.failure !== undefined) throw fault.failure;
  const scripts = scriptsOf(request, (one) => faultScript(one, fault));
  return { chunks: perform(request, scripts, fault, signal, timeouts.idleMs) };
}

/** Writes the script of each choice, which has a seed of its own. */
function scriptsOf(request: UpstreamRequest, write: (request: UpstreamRequest) => Script): Script[] {
  const { n = 1, seed = 0 } = request;
  return Array.from({ length: n }, (_, index) => write({ ...request, seed: seed + index }));
}

function scriptOf(request: UpstreamRequest): Script {
  const { model, messages, seed = 0 } = request;
  if (model === "echo") return toScript(request, textTokens(lastUserText(messages)));
  if (model === "story") return toScript(request, story(seed));
  const reason = `The sandbox has the models ${MODELS.join(", ")}.`;
  throw new UpstreamError("misconfigured", reason, { said: reason });
}

function faultScript(request: UpstreamRequest, fault: Fault): Script {
  const last = fault.events.at(-1)?.afterTokens ?? 0;
  const tokens = story(request.seed ?? 0).take(fault.tokens ?? Math.max(FAULT_TOKENS, last));
  const script = toScript(request, tokens);
  return fault.isRefusal ? toRefusal(script) : script;
}

async function* perform(
  { instructions = "", messages }: UpstreamRequest,
  scripts: readonly Script[],
  fault: Pick<Fault, "events" | "finishReason" | "isWithoutUsage">,
  signal: AbortSignal,
  idleMs: number,
): AsyncGenerator<readonly UpstreamChunk[], undefined> {
  const indexField = (index: number) => (index === 0 ? {} : { index });
  const pieces = scripts
    .flatMap(({ pieces: own }, index) => own.map((delta, place) => ({ place, chunk: { ...indexField(index), delta } })))
    .sort((one, other) => one.place - other.place)
    .map(({ chunk }) => chunk);
  const chunks: UpstreamChunk[] = [{ delta: { role: "assistant" } }, ...pieces];
  let sent = 0;
  for (const event of fault.events) {
    if (event.afterTokens >= chunks.length) break;
    const before = chunks.slice(sent, event.afterTokens + 1);
    if (before.length > 0) yield before;
    sent = event.afterTokens + 1;
    signal.throwIfAborted();
    if ("failure" in event) throw event.failure;
    await wait(event.silenceMs, idleMs, signal);
  }
  for (const [index, { finishReason }] of scripts.entries()) {
    chunks.push({ ...indexField(index), finish_reason: fault.finishReason ?? finishReason });
  }
  const prompt_tokens = countTokens(instructions) + countPromptTokens(messages);
  const usage = { prompt_tokens, completion_tokens: pieces.length };
  if (!fault.isWithoutUsage) chunks.push({ usage });
  for (; sent < chunks.length; sent += PIECES_A_BATCH) {
    if (sent > 0) await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
    yield chunks.slice(sent, sent + PIECES_A_BATCH);
  }
}

/** Simulates a silent upstream. Rejects with UpstreamError `timeout` once the provider's own timeout has passed. */
async function wait(silenceMs: number, timeoutMs: number, signal: AbortSignal): Promise<void> {
  if (silenceMs === 0) return;
  await sleep(Math.min(silenceMs, timeoutMs), undefined, { signal }).catch(() => signal.throwIfAborted());
  if (silenceMs > timeoutMs) {
    throw new UpstreamError("timeout", "The sandbox was silent for longer than the timeout");
  }
}

const EMBEDDING_MODEL = "embed";
const DIMENSIONS = 256;
/** Inputs after which others have their turn. */
const INPUTS_A_BATCH = 16;
const NUMBERS_A_HASH = 8;

/** Creates unit vectors that depend on nothing but the input and the dimensions: the same input always has the same vector. */
async function embedInSandbox({ model, request, signal }: TaskCall<"embedding">): Promise<ProviderAnswer> {
  const { inputs, dimensions = DIMENSIONS } = request;
  if (model !== EMBEDDING_MODEL) {
    const reason = `The sandbox creates embeddings with the model ${EMBEDDING_MODEL} alone.`;
    throw new UpstreamError("misconfigured", reason, { said: reason });
  }
  const vectors: number[][] = [];
  for (const [index, input] of inputs.entries()) {
    if (index % INPUTS_A_BATCH === 0) await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
    vectors.push(unitVector(input, dimensions));
  }
  const counts = inputs.map((input) => (typeof input === "string" ? countTokens(input) : input.length));
  const tokens = counts.reduce((sum, count) => sum + count, 0);
  const usage = { prompt_tokens: tokens, completion_tokens: 0 };
  return { chunks: once([{ vectors, usage, finish_reason: "stop" }]) };
}

function unitVector(input: EmbeddingInput, dimensions: number): number[] {
  const seed = createHash("sha256").update(JSON.stringify(input)).digest();
  const numbers: number[] = [];
  for (let block = 0; numbers.length < dimensions; block += 1) {
    const bytes = createHash("sha256").update(seed).update(String(block)).digest();
    for (let place = 0; place < NUMBERS_A_HASH; place += 1) numbers.push(bytes.readInt32LE(place * 4) / 2 ** 31);
  }
  const vector = numbers.slice(0, dimensions);
  const length = Math.hypot(...vector) || 1;
  return vector.map((number) => Math.fround(number / length));
}
