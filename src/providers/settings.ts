import { isPublicHost } from "../api/chat/image-address.ts";
import { OperatorError } from "../errors.ts";
import type { RequestFormat } from "./openai/request.ts";
import type { RequestIdentity } from "./provider.ts";

/** Configuration keys that only some kinds have. Each kind lists those that it takes. */
export const KIND_KEYS = [
  "apiKey",
  "baseUrl",
  "region",
  "accessKeyId",
  "secretAccessKey",
  "sessionToken",
  "project",
  "location",
  "credentialsFile",
  "resourceName",
] as const;
export type KindKey = (typeof KIND_KEYS)[number];

/** Marks for the upstream's cache: set by the service where the caller sets none, only by the caller, or none. */
export type PromptCaching = "auto" | "caller" | "off";

/** Settings of one configured provider. */
export interface ProviderSettings {
  /** The id by which routes name the provider. */
  id: string;
  /** One of `PROVIDER_KINDS`. */
  kind: string;
  baseUrl: string | null;
  apiKey: string | null;
  /** Headers of every request. They override those of the kind. */
  headers: Readonly<Record<string, string>>;
  timeouts: ProviderTimeouts;
  /** Differences from the default format, for an OpenAI-compatible API. */
  requestFormat?: Partial<RequestFormat>;
  /** A second wire that the upstream speaks. */
  secondWire?: SecondWire;
  /** Who marks what the provider caches, on wires that need marks; absent: `auto`. */
  promptCaching?: PromptCaching;
  /** True if the upstream is sent the trace context of requests. */
  traceparent?: boolean;
  /** AWS region. */
  region?: string;
  accessKeyId?: string;
  secretAccessKey?: string;
  /** AWS session token of temporary credentials. */
  sessionToken?: string;
  /** Google Cloud project. */
  project?: string;
  location?: string;
  /** Path of a Google Cloud credentials file; absent: the application default credentials. */
  credentialsFile?: string;
  /** Azure resource name. */
  resourceName?: string;
}

/** A second wire of an upstream. `servesOnly` matches the models that it serves on this wire only. */
export type SecondWire = { wire: "messages" } | { wire: "responses"; servesOnly?: RegExp };

export interface ProviderTimeouts {
  connectMs: number;
  /** From the request being sent to the answer's headers. */
  firstByteMs: number;
  /** Between two reads of the answer's body. */
  idleMs: number;
}

/** Variables of the process; only those that name proxies are read. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Headers that belong to the connection, or would change how the answer is read. */
export const OWN_HEADERS =
  /^(accept-encoding|connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/;

/** Throws OperatorError if the settings of a provider contain one of `OWN_HEADERS`. */
export function refuseOwnHeaders({ id, headers }: Pick<ProviderSettings, "id" | "headers">): void {
  const own = Object.keys(headers).find((name) => OWN_HEADERS.test(name.toLowerCase()));
  if (own !== undefined) throw new OperatorError(`providers '${id}': headers must not set '${own}'`);
}

/** Returns the headers by which an upstream can find a request of this service. */
export function identityHeaders(
  { traceparent: isTrusted }: Pick<ProviderSettings, "traceparent">,
  { requestId, traceparent }: RequestIdentity,
): Record<string, string> {
  return {
    ...(requestId !== undefined && { "x-request-id": requestId }),
    ...(isTrusted === true && traceparent !== undefined && { traceparent }),
  };
}

/** Tests whether an upstream is in a private network. `baseUrl` is null for a provider that has its own address. */
export function isPrivateUpstream(baseUrl: string | null): boolean {
  const host = baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
  return host !== undefined && !isPublicHost(host);
}
