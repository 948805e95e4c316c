import type { CallCounts } from "../../api/price-classes.ts";
import { TASKS } from "../../api/tasks.ts";
import type { Route } from "../../catalog/model.ts";
import { estimateInputs } from "../../credits/estimate.ts";
import type { TaskRequests } from "../../providers/provider.ts";
import type { Gateway, GatewayCall } from "../gateway.ts";
import { labelsOf, modelForTask, type Plan } from "../plan.ts";

type Planner = Pick<Gateway, "catalog" | "providers" | "longTasks">;

/**
 * Plans a request that a provider takes as it is. `texts` are those of its prompt, `calls` what it costs at most besides tokens.
 * Throws model_not_found, model_not_allowed or unsupported_value.
 */
export function planTask<Task extends keyof TaskRequests>(
  { catalog, providers, longTasks }: Planner,
  call: Omit<GatewayCall, "kind" | "request"> & { request: TaskRequests[Task] },
  task: Task,
  { texts, calls, user }: { texts: readonly string[]; calls: CallCounts; user?: string | undefined },
): Plan {
  const { principal, request, output, requestId, traceparent, signal } = call;
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
      return run({ request, model: route.model, requestId, traceparent, signal, inTurn });
    },
  };
}

/** Plans a request of speech, which is charged by the characters of its text. Throws like `planTask`. */
export function planSpeech(gateway: Planner, call: GatewayCall<"speech">): Plan {
  const { input, instructions = "" } = call.request;
  const calls = { characters: [...input].length };
  return { ...planTask(gateway, call, "speech", { texts: [input, instructions], calls }), isStreamed: true };
}
