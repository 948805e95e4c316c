import type { RequestFormat } from "./openai/request.ts";

/** Keys that only some kinds have; each kind says which of them it takes. */
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

/** What a kind of provider is configured with. */
export interface ProviderSettings {
  /** As routes name it. */
  id: string;
  /** One of `PROVIDER_KINDS`. */
  kind: string;
  baseUrl: string | null;
  apiKey: string | null;
  /** Sent with every request, over the kind's own. */
  headers: Readonly<Record<string, string>>;
  timeouts: ProviderTimeouts;
  /** Differences from the default format, for an OpenAI-compatible API. */
  requestFormat?: Partial<RequestFormat>;
  /** Of Amazon Web Services. */
  region?: string;
  accessKeyId?: string;
  secretAccessKey?: string;
  /** Of temporary credentials. */
  sessionToken?: string;
  /** Of Google Cloud. */
  project?: string;
  location?: string;
  /** Path of a file with credentials of Google Cloud; absent: those of the surroundings. */
  credentialsFile?: string;
  /** Of Azure. */
  resourceName?: string;
}

export interface ProviderTimeouts {
  connectMs: number;
  /** From the request being sent to the answer's headers. */
  firstByteMs: number;
  /** Between two reads of the answer's body. */
  idleMs: number;
}

/** Variables of the process; only those that name proxies are read. */
export type Environment = Readonly<Record<string, string | undefined>>;
