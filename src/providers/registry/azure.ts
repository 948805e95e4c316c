import { ownWire } from "./known-provider.ts";

export const azure = ownWire({
  id: "azure",
  name: "Azure OpenAI",
  documentation: "https://learn.microsoft.com/azure/ai-foundry/openai/latest",
  remarks: ["A price is known only where the deployment has the model's own name: state it otherwise."],
});
