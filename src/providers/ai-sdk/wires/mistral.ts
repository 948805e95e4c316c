import type { ProviderSettings } from "../../settings.ts";
import { type Fetch, missing, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";

async function open(settings: ProviderSettings, fetch: Fetch) {
  const { createMistral } = await import("@ai-sdk/mistral");
  return createMistral(optionsOf(settings, fetch));
}

/** Mistral's chat completions: https://docs.mistral.ai/api/endpoint/chat */
export const mistral: Wire = {
  packages: ["@ai-sdk/mistral"],
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => (fetch) => open(settings, fetch),
  embedding: {
    connect: (settings) => async (fetch) => (await open(settings, fetch)).embeddingModel,
  },
  takes: ["parallel_tool_calls"],
  fields: { "content.file": "translated", "content.file.file_url": "translated" },
  fit({ parallel_tool_calls: isParallel, response_format: format }) {
    const isStrict = format?.type === "json_schema" && format.json_schema.strict === true;
    const own = { strictJsonSchema: isStrict, ...(isParallel !== undefined && { parallelToolCalls: isParallel }) };
    return { options: { providerOptions: { mistral: own } }, ignored: [] };
  },
  // "thinking" chunks are sent back with the message that they belong to ("Reasoning" in Mistral's documentation).
  prompt: { ...USUAL_PROMPT, takesPlainReasoning: true, takesOnlyPdf: true },
  metadataKey: "mistral",
  reasoningFields: [],
};
