import type { CallCounts } from "../../api/price-classes.ts";
import { TASKS } from "../../api/tasks.ts";
import type { Route } from "../../catalog/model.ts";
import { estimateInputs } from "../../credits/estimate.ts";
import type { ProviderAnswer, TaskRequests } from "../../providers/provider.ts";
import type { Gateway, GatewayCall } from "../gateway.ts";
import { labelsOf, modelForTask, type Plan } from "../plan.ts";

export type TaskPlanner = Pick<Gateway, "catalog" | "providers" | "longTasks">;

/**
 * Plans a request that a provider takes as it is. `texts` are those of its prompt, `calls` what it costs at most besides tokens.
 * Throws model_not_found, model_not_allowed or unsupported_value.
 */
export function planTask<Task extends keyof TaskRequests>(
  { catalog, providers, longTasks }: TaskPlanner,
  call: Omit<GatewayCall, "kind" | "request"> & { request: TaskRequests[Task] },
  task: Task,
  { texts, calls, user }: { texts: readonly string[]; calls: CallCounts; user?: string | undefined },
): Plan {
  const { principal, request, output, requestId, traceparent, signal, room } = call;
  const { model, routes } = modelForTask(
    { catalog, providers },
    { principal, request },
    task,
    ({ tasks }) => tasks?.[task],
  );
  const [first, ...others] = routes;
  const callsMost = Math.max(0, ...Object.values(calls));
  const bounded = (route: Route) => (route.callsMost === undefined ? route : { ...route, callsMost });
  return {
    operation: TASKS[task].operation,
    model,
    routes: [bounded(first), ...others.map(bounded)],
    ignored: [],
    labels: labelsOf(null, user, model, request.model, principal.pins),
    output,
    estimate: { ...estimateInputs(texts), calls },
    isStreamed: false,
    isInputOnly: false,
    promptTexts: () => texts,
    send: async (provider, route) => {
      const run = provider.tasks?.[task];
      if (run === undefined) throw new Error(`The provider '${provider.id}' does not support ${TASKS[task].work}`);
      const inTurn = <Result>(work: () => Result) => longTasks.run(principal.organizationId, work);
      return run({ request, model: route.model, requestId, traceparent, signal, inTurn, room });
    },
  };
}

/** Plans a request of speech, which is charged by the characters of its text. Throws like `planTask`. */
export function planSpeech(gateway: TaskPlanner, call: GatewayCall<"speech">): Plan {
  const { input, instructions = "" } = call.request;
  const calls = { characters: [...input].length };
  return { ...planTask(gateway, call, "speech", { texts: [input, instructions], calls }), isStreamed: true };
}

/** Bytes of a second of audio: speech has at least 4.75 kbit/s in the usual formats (3GPP TS 26.071, AMR). */
const BYTES_A_SECOND_LEAST = 500;
/** Usual bytes of audio for each token, of ten in a second at 32 kbit/s. */
const BYTES_A_TOKEN_LIKELY = 400;

/**
 * Plans a request to transcribe audio. Until the answer states its duration, that is bounded by the size of the file. Throws like
 * `planTask`.
 */
export function planTranscription(gateway: TaskPlanner, call: GatewayCall<"transcription">): Plan {
  const { file, prompt = "" } = call.request;
  const seconds = Math.max(1, Math.ceil(file.bytes.length / BYTES_A_SECOND_LEAST));
  const plan = planTask(gateway, call, "transcription", { texts: [prompt], calls: { seconds } });
  const { contextWindow, maxOutputTokens } = plan.model;
  const hasPriceOfSeconds = plan.routes.some(({ callsMost }) => callsMost !== undefined);
  const likelyBesideText = Math.min(contextWindow, Math.ceil(file.bytes.length / BYTES_A_TOKEN_LIKELY));
  const { likely, most } = plan.estimate;
  return {
    ...plan,
    output: { ...plan.output, tokens: maxOutputTokens },
    estimate: {
      ...plan.estimate,
      // A bound that nobody pays is no count.
      calls: hasPriceOfSeconds ? { seconds } : {},
      likely: likely + likelyBesideText,
      likelyBesideText,
      most: most + contextWindow,
      hasMedia: true,
    },
    send: async (provider, route, maxTokens) => {
      const answer = await plan.send(provider, route, maxTokens);
      return { ...answer, chunks: timed(answer.chunks, seconds, route.callsMost !== undefined) };
    },
  };
}

/** Adds the most seconds to reports of tokens alone, which a price of seconds needs. */
async function* timed(
  chunks: ProviderAnswer["chunks"],
  secondsMost: number,
  hasPrice: boolean,
): ProviderAnswer["chunks"] {
  for await (const batch of chunks) {
    yield batch.map(({ calls, ...chunk }) => {
      const seconds = calls?.seconds ?? secondsMost;
      const usage = hasPrice && chunk.usage !== undefined ? { ...chunk.usage, seconds } : chunk.usage;
      return { ...chunk, usage, calls };
    });
  }
}
