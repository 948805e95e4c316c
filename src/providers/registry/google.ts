import { ownWire } from "./known-provider.ts";

export const google = ownWire({
  id: "google",
  name: "Google (Gemini API)",
  keyVariable: "GEMINI_API_KEY",
  baseUrl: "https://generativelanguage.googleapis.com/v1beta",
  documentation: "https://ai.google.dev/api/generate-content",
  refuses: ["logit_bias", "logprobs", "parallel_tool_calls", "top_logprobs", "user"],
  remarks: [
    "All system messages go first.",
    "With `reasoning_effort`, a summary of the thoughts comes as `reasoning_content`.",
  ],
  compatible: { lacks: [], refuses: [] },
});
