import type { AuthClient } from "google-auth-library";
import { UpstreamError } from "../../provider.ts";
import type { ProviderSettings } from "../../settings.ts";
import { upstreamErrorIn } from "../failure.ts";
import { type Fetch, missing, USUAL_PROMPT, type Wire } from "../wire.ts";
import { geminiFit } from "./gemini.ts";

/** Gemini on Google Cloud: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference */
export const googleVertex: Wire = {
  package: "@ai-sdk/google-vertex",
  keys: ["apiKey", "baseUrl", "project", "location", "credentialsFile"],
  fault(settings) {
    const { apiKey, project, location, credentialsFile } = settings;
    if (apiKey !== null) {
      if (!project && !location && !credentialsFile) return undefined;
      return "takes apiKey, or project and location, not both";
    }
    return missing(settings, "project", "location");
  },
  connect(settings, fetchToken) {
    const { apiKey, baseUrl, project = "", location = "", headers } = settings;
    const identity = new Identity(settings, fetchToken);
    return async (fetch) => {
      const { createGoogleVertex } = await import("@ai-sdk/google-vertex");
      const common = { headers: { ...headers }, ...(baseUrl !== null && { baseURL: baseUrl }), fetch };
      if (apiKey !== null) return createGoogleVertex({ apiKey, ...common });
      const googleAuthOptions = { authClient: await identity.client() };
      return createGoogleVertex({ apiKey: "", project, location, googleAuthOptions, ...common });
    };
  },
  takes: [],
  fit: (request) => geminiFit(request, "googleVertex"),
  prompt: { ...USUAL_PROMPT, isSystemFirst: true },
  metadataKey: "googleVertex",
  reasoningFields: [],
};

const SCOPE = "https://www.googleapis.com/auth/cloud-platform";

/** Who the service is on Google Cloud: one client for all calls, since it keeps its token for as long as that is good. */
class Identity {
  readonly #settings: ProviderSettings;
  readonly #fetchToken: Fetch;
  #client: Promise<AuthClient> | undefined;

  constructor(settings: ProviderSettings, fetchToken: Fetch) {
    this.#settings = settings;
    this.#fetchToken = fetchToken;
  }

  /** A client that has a token. Rejects with UpstreamError. */
  async client(): Promise<AuthClient> {
    this.#client ??= this.#create();
    try {
      const client = await this.#client;
      await client.getAccessToken();
      return client;
    } catch (error) {
      this.#client = undefined;
      throw (
        upstreamErrorIn(error) ?? new UpstreamError("credentials", "The credentials of Google Cloud cannot be used")
      );
    }
  }

  async #create(): Promise<AuthClient> {
    const { GoogleAuth } = await import("google-auth-library");
    const { credentialsFile: keyFilename } = this.#settings;
    const transporterOptions = { fetchImplementation: this.#fetchToken };
    const auth = new GoogleAuth({
      scopes: [SCOPE],
      ...(keyFilename && { keyFilename }),
      clientOptions: { transporterOptions },
    });
    return auth.getClient();
  }
}
