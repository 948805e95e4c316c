import { ownWire } from "./known-provider.ts";

export const googleVertex = ownWire({
  id: "google-vertex",
  name: "Google Cloud (Vertex AI)",
  pricesId: "google",
  documentation: "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference",
  refuses: ["logit_bias", "logprobs", "parallel_tool_calls", "top_logprobs", "user"],
  remarks: [
    "All system messages go first.",
    "Known prices are those of the global location: state others where a region is dearer.",
  ],
});
