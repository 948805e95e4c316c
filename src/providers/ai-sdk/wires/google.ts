import type { ProviderSettings } from "../../settings.ts";
import { type Fetch, missing, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";
import { geminiFit } from "./gemini.ts";

async function open(settings: ProviderSettings, fetch: Fetch) {
  const { createGoogle } = await import("@ai-sdk/google");
  return createGoogle(optionsOf(settings, fetch));
}

/** The Gemini API: https://ai.google.dev/api/generate-content */
export const google: Wire = {
  package: "@ai-sdk/google",
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => (fetch) => open(settings, fetch),
  embedding: {
    connect: (settings) => async (fetch) => (await open(settings, fetch)).embeddingModel,
  },
  takes: [],
  fit: (request) => geminiFit(request, "google"),
  prompt: { ...USUAL_PROMPT, isSystemFirst: true },
  metadataKey: "google",
  reasoningFields: [],
};
