import type { Static } from "typebox";
import { isPublicHost } from "../api/chat/image-address.ts";
import type { ProviderSchema } from "../config/upstream-schema.ts";
import type { RequestFormat } from "./openai/request.ts";
import type { RequestIdentity } from "./provider.ts";

type Stated = Static<typeof ProviderSchema>;
/** A configuration key that only some kinds have. Each kind lists those that it takes. */
export type KindKey = Exclude<keyof Stated, "id" | "kind" | "headers" | "timeouts" | "traceparent" | "promptCaching">;
/** Marks for the upstream's cache: set by the service where the caller sets none, only by the caller, or none. */
export type PromptCaching = NonNullable<Stated["promptCaching"]>;
export type ProviderTimeouts = Stated["timeouts"];

export interface ProviderSettings extends Omit<Stated, "baseUrl" | "apiKey"> {
  baseUrl: string | null;
  apiKey: string | null;
  requestFormat?: Partial<RequestFormat>;
  secondWire?: SecondWire;
}

export interface SecondWire {
  wire: "messages" | "responses" | "generateContent";
  /** Matches the models that the upstream serves on this wire only; they must be those of `responses`. */
  servesOnly?: RegExp;
  lacksTypedTools?: boolean;
}

/** Variables of the process; only those that name proxies are read. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Headers that belong to the connection, or would change how the answer is read. */
export const OWN_HEADERS =
  /^(accept-encoding|connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/;

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
