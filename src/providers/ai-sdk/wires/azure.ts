import { isObject } from "../../../api/json.ts";
import type { UpstreamRequest } from "../../provider.ts";
import { AZURE_SCHEMAS } from "../../schemas.ts";
import { missingKey, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";

/** Azure OpenAI's chat completions: https://learn.microsoft.com/azure/ai-foundry/openai/latest */
export const azure: Wire = {
  packages: ["@ai-sdk/azure"],
  keys: ["apiKey", "baseUrl", "resourceName"],
  fault(settings) {
    const { baseUrl, resourceName } = settings;
    if (baseUrl === null && !resourceName) return "needs resourceName or baseUrl";
    return missingKey(settings, "apiKey");
  },
  connect: (settings) => async (fetch) => {
    const { createAzure } = await import("@ai-sdk/azure");
    const { resourceName = "", baseUrl } = settings;
    const baseURL = baseUrl ?? `https://${resourceName}.openai.azure.com/openai`;
    const { chat, embeddingModel } = createAzure({ ...optionsOf(settings, fetch), baseURL });
    return { languageModel: chat, embeddingModel };
  },
  embedding: {
    // The package reads the length from its own options alone.
    options: (dimensions) => ({ openai: { ...(dimensions !== undefined && { dimensions }) } }),
  },
  takes: ["user", "logit_bias", "parallel_tool_calls", "logprobs"],
  // The package leaves service_tier out, because the name of a deployment does not reveal its model.
  fields: {
    verbosity: "translated",
    store: "translated",
    safety_identifier: "translated",
    prompt_cache_key: "translated",
    prompt_cache_retention: "translated",
    "content.file": "translated",
    "content.input_audio": "translated",
  },
  schemas: AZURE_SCHEMAS,
  fit(request) {
    const { logit_bias, logprobs, top_logprobs, parallel_tool_calls, response_format: format, user } = request;
    const isStrict = format?.type === "json_schema" && format.json_schema.strict === true;
    const own = {
      // The name of a deployment does not reveal its model, and only this field works with every model.
      maxCompletionTokens: request.max_tokens,
      strictJsonSchema: isStrict,
      ...(logit_bias !== undefined && { logitBias: logit_bias }),
      ...(logprobs === true && { logprobs: top_logprobs ?? true }),
      ...(parallel_tool_calls !== undefined && request.tools && { parallelToolCalls: parallel_tool_calls }),
      ...(user !== undefined && { user }),
      ...rareOptions(request),
    };
    const raw = logprobs === true ? { includeRawChunks: true } : {};
    return { options: { maxOutputTokens: undefined, ...raw, providerOptions: { openai: own } } };
  },
  prompt: { ...USUAL_PROMPT, takesOnlyPdf: true, imageDetail: (detail) => ({ openai: { imageDetail: detail } }) },
  metadataKey: "openai",
  reasoningFields: [],
  logprobsOf(raw) {
    const [choice] = isObject(raw) && Array.isArray(raw.choices) ? raw.choices : [];
    return isObject(choice) && isObject(choice.logprobs) ? choice.logprobs : undefined;
  },
};

/** Returns the package's options for fields that few providers take. */
function rareOptions(request: UpstreamRequest) {
  const { verbosity, store, safety_identifier, prompt_cache_key, prompt_cache_retention } = request;
  return {
    ...(verbosity !== undefined && { textVerbosity: verbosity }),
    ...(store !== undefined && { store }),
    ...(safety_identifier !== undefined && { safetyIdentifier: safety_identifier }),
    ...(prompt_cache_key !== undefined && { promptCacheKey: prompt_cache_key }),
    ...(prompt_cache_retention !== undefined && {
      promptCacheRetention: prompt_cache_retention === "24h" ? "24h" : "in_memory",
    }),
  };
}
