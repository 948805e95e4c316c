import { KEYED, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";

/** Mistral's chat completions: https://docs.mistral.ai/api/endpoint/chat */
export const mistral: Wire = {
  packages: ["@ai-sdk/mistral"],
  ...KEYED,
  connect: (settings) => async (fetch) => {
    const { createMistral } = await import("@ai-sdk/mistral");
    return createMistral(optionsOf(settings, fetch));
  },
  embedding: {},
  takes: ["parallel_tool_calls"],
  fields: { "content.file": "translated", "content.file.file_url": "translated" },
  fit({ parallel_tool_calls: isParallel, response_format: format }) {
    const isStrict = format?.type === "json_schema" && format.json_schema.strict === true;
    const own = { strictJsonSchema: isStrict, ...(isParallel !== undefined && { parallelToolCalls: isParallel }) };
    return { options: { providerOptions: { mistral: own } } };
  },
  // "thinking" chunks are sent back with the message that they belong to ("Reasoning" in Mistral's documentation).
  prompt: { ...USUAL_PROMPT, takesPlainReasoning: true, takesOnlyPdf: true },
  metadataKey: "mistral",
  reasoningFields: [],
};
