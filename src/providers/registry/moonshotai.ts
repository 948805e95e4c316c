import { openAiCompatible } from "./known-provider.ts";

export const moonshotai = openAiCompatible({
  id: "moonshotai",
  name: "Moonshot AI",
  keyVariable: "MOONSHOT_API_KEY",
  baseUrl: "https://api.moonshot.ai/v1",
  documentation: "https://platform.moonshot.ai/docs/api/chat",
});
