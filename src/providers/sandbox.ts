import { setTimeout as sleep } from "node:timers/promises";
import { fitFields, passing } from "./fields.ts";
import {
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type UpstreamChunk,
  UpstreamError,
  type UpstreamRequest,
} from "./provider.ts";
import { type Fault, readFault } from "./sandbox/fault.ts";
import { checkSchema, type Script, toRefusal, toScript } from "./sandbox/script.ts";
import { SANDBOX_TASK_MODELS, SANDBOX_TASKS } from "./sandbox/tasks.ts";
import { countPromptTokens, countTokens, lastUserText, story, textTokens } from "./sandbox/text.ts";
import type { Environment, ProviderSettings, ProviderTimeouts } from "./settings.ts";

/** Pieces in one item of the answer. The event loop serves other requests between items. */
const PIECES_A_BATCH = 128;
const FAULT_TOKENS = 10;
const NO_FAULT = { events: [] };
const FIELDS = passing("n");
const MODELS = ["echo", "story", "fault"] as const;

/** Creates the provider of the sandbox models: deterministic, without a network, with correct usage. */
export function createSandbox({ id, timeouts }: ProviderSettings, _environment: Environment): Provider {
  return {
    id,
    isScripted: true,
    convert: (request) => {
      const fitted = fitFields(request, FIELDS);
      checkSchema(request);
      return fitted;
    },
    complete: async (call) => {
      const { request, ignored } = fitFields(call.request, FIELDS);
      return { ...(await complete({ ...call, request }, timeouts)), ignored };
    },
    tasks: SANDBOX_TASKS,
    takesTokenIds: true,
    listModels: async () => [...MODELS, ...SANDBOX_TASK_MODELS],
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
