import { missing, USUAL_PROMPT, type Wire } from "../wire.ts";
import { geminiFit } from "./gemini.ts";

/** The Gemini API: https://ai.google.dev/api/generate-content */
export const google: Wire = {
  package: "@ai-sdk/google",
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => async (fetch) => {
    const { createGoogle } = await import("@ai-sdk/google");
    const { apiKey, headers, baseUrl } = settings;
    const baseURL = baseUrl ?? "https://generativelanguage.googleapis.com/v1beta";
    return createGoogle({ apiKey: apiKey ?? "", baseURL, headers: { ...headers }, fetch });
  },
  takes: [],
  fit: (request) => geminiFit(request, "google"),
  prompt: { ...USUAL_PROMPT, isSystemFirst: true },
  metadataKey: "google",
  reasoningFields: [],
};
