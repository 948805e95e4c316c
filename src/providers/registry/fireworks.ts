import { openAiCompatible } from "./known-provider.ts";

export const fireworks = openAiCompatible({
  id: "fireworks",
  name: "Fireworks",
  keyVariable: "FIREWORKS_API_KEY",
  baseUrl: "https://api.fireworks.ai/inference/v1",
  documentation: "https://docs.fireworks.ai/api-reference/post-chatcompletions",
});
