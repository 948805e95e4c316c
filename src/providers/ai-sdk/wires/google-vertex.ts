import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { AuthClient } from "google-auth-library";
import { isObject } from "../../../api/json.ts";
import { UpstreamError } from "../../provider.ts";
import type { ProviderSettings } from "../../settings.ts";
import { type Fetch, missingKey, optionsOf, type Wire } from "../wire.ts";
import { gemini } from "./google.ts";

function open(settings: ProviderSettings, fetchToken: Fetch) {
  const { apiKey, project = "", location = "" } = settings;
  const authClient = identityOf(settings, fetchToken);
  return async (fetch: Fetch) => {
    const { createGoogleVertex } = await import("@ai-sdk/google-vertex");
    const options = optionsOf(settings, fetch);
    if (apiKey !== null) return createGoogleVertex(options);
    return createGoogleVertex({ ...options, project, location, googleAuthOptions: { authClient: await authClient() } });
  };
}

/** Gemini on Google Cloud: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference */
export const googleVertex: Wire = {
  packages: ["@ai-sdk/google-vertex", "google-auth-library"],
  keys: ["apiKey", "baseUrl", "project", "location", "credentialsFile"],
  fault(settings) {
    const { apiKey, project, location, credentialsFile } = settings;
    if (apiKey !== null) {
      if (!project && !location && !credentialsFile) return undefined;
      return "takes apiKey, or project and location, not both";
    }
    const isFile = !credentialsFile || existsSync(credentialsFile);
    return missingKey(settings, "project", "location") ?? (isFile ? undefined : `has no file '${credentialsFile}'`);
  },
  connect: open,
  embedding: {
    // A text that is too long is refused rather than cut.
    options: () => ({ googleVertex: { autoTruncate: false } }),
    // "Each request can only include a single input text"; the other models take 20,000 tokens in texts of up to 2,048.
    inputsACall: (model) => (model.startsWith("gemini") ? 1 : 9),
  },
  ...gemini,
  fields: { ...gemini.fields, "content.file.file_url": "translated" },
  metadataKey: "googleVertex",
};

const SCOPE = "https://www.googleapis.com/auth/cloud-platform";

/** Returns a function that returns the client of all calls, which keeps its token. It rejects with UpstreamError. */
function identityOf(settings: ProviderSettings, fetchToken: Fetch): () => Promise<AuthClient> {
  let shared: Promise<AuthClient> | undefined;
  let failure: unknown;
  /** Records the failure of a token request, which the library does not pass on. */
  const fetch: Fetch = async (address, init) => {
    try {
      return await fetchToken(address, init);
    } catch (error) {
      failure = error;
      throw error;
    }
  };
  return async () => {
    shared ??= createClient(settings, fetch);
    failure = undefined;
    try {
      const client = await shared;
      await client.getAccessToken();
      return client;
    } catch (error) {
      shared = undefined;
      throw failure ?? withoutToken(error);
    }
  };
}

async function createClient({ credentialsFile }: ProviderSettings, fetch: Fetch): Promise<AuthClient> {
  const { GoogleAuth, IdentityPoolClient, JWT, UserRefreshClient } = await import("google-auth-library");
  const common = { transporterOptions: { fetchImplementation: fetch } };
  if (!credentialsFile) return new GoogleAuth({ scopes: [SCOPE], clientOptions: common }).getClient();
  const written = JSON.parse(await readFile(credentialsFile, "utf8"));
  // Only this client exchanges its token over the library's own connections.
  if (written.type === "external_account") return new IdentityPoolClient({ ...written, ...common, scopes: [SCOPE] });
  const isPerson = written.type === "authorized_user";
  const client = isPerson ? new UserRefreshClient(common) : new JWT({ ...common, scopes: [SCOPE] });
  client.fromJSON(written);
  return client;
}

function withoutToken(error: unknown): UpstreamError {
  const status = isObject(error) && typeof error.status === "number" ? error.status : 0;
  return status >= 500
    ? new UpstreamError("unavailable", `Google Cloud answered a token request with ${status}`)
    : new UpstreamError("credentials", "The credentials of Google Cloud cannot be used");
}
