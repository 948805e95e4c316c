import { missing, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";
import { geminiFit } from "./gemini.ts";

/** The Gemini API: https://ai.google.dev/api/generate-content */
export const google: Wire = {
  package: "@ai-sdk/google",
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => async (fetch) => {
    const { createGoogle } = await import("@ai-sdk/google");
    return createGoogle(optionsOf(settings, fetch));
  },
  takes: [],
  fit: (request) => geminiFit(request, "google"),
  prompt: { ...USUAL_PROMPT, isSystemFirst: true },
  metadataKey: "google",
  reasoningFields: [],
};
