import { translating } from "../../fields.ts";
import { keyed, type Wire } from "../wire.ts";

/** Mistral's chat completions: https://docs.mistral.ai/api/endpoint/chat */
export const mistral: Wire = {
  ...keyed("@ai-sdk/mistral", async () => (await import("@ai-sdk/mistral")).createMistral),
  embedding: {},
  fields: translating("parallel_tool_calls", "content.file", "content.file.file_url"),
  fit({ parallel_tool_calls: parallelToolCalls, response_format: format }) {
    const strictJsonSchema = format?.type === "json_schema" && format.json_schema.strict === true;
    return { own: { strictJsonSchema, parallelToolCalls } };
  },
  // "thinking" chunks are sent back with the message that they belong to ("Reasoning" in Mistral's documentation).
  prompt: { takesPlainReasoning: true, takesOnlyPdf: true },
  metadataKey: "mistral",
};
