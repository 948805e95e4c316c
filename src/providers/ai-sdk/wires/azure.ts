import { isObject } from "../../../api/json.ts";
import { translating } from "../../fields.ts";
import { AZURE_SCHEMAS } from "../../schemas.ts";

import { missingKey, optionsOf, type Wire } from "../wire.ts";

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
    options: (dimensions) => ({ openai: { dimensions } }),
  },
  takes: ["user", "logit_bias", "parallel_tool_calls", "logprobs"],
  // The package leaves service_tier out, because the name of a deployment does not reveal its model.
  fields: translating(
    ...(["verbosity", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"] as const),
    ...(["content.file", "content.input_audio"] as const),
  ),
  schemas: AZURE_SCHEMAS,
  fit(request) {
    const { logprobs, response_format: format, prompt_cache_retention: retention } = request;
    const own = {
      // The name of a deployment does not reveal its model, and only this field works with every model.
      maxCompletionTokens: request.max_tokens,
      strictJsonSchema: format?.type === "json_schema" && format.json_schema.strict === true,
      logitBias: request.logit_bias,
      logprobs: logprobs === true ? (request.top_logprobs ?? true) : undefined,
      parallelToolCalls: request.tools && request.parallel_tool_calls,
      user: request.user,
      textVerbosity: request.verbosity,
      store: request.store,
      safetyIdentifier: request.safety_identifier,
      promptCacheKey: request.prompt_cache_key,
      promptCacheRetention: retention === "in-memory" ? "in_memory" : retention,
    };
    const raw = logprobs === true ? { includeRawChunks: true } : {};
    return { options: { maxOutputTokens: undefined, ...raw }, own };
  },
  prompt: { takesOnlyPdf: true, imageDetail: (detail) => ({ openai: { imageDetail: detail } }) },
  metadataKey: "openai",
  logprobsOf(raw) {
    const [choice] = isObject(raw) && Array.isArray(raw.choices) ? raw.choices : [];
    return isObject(choice) && isObject(choice.logprobs) ? choice.logprobs : undefined;
  },
};
