/** What a kind of provider is configured with. */
export interface ProviderSettings {
  /** As routes name it. */
  id: string;
  /** A key of the table in `index.ts`. */
  kind: string;
  baseUrl: string | null;
  apiKey: string | null;
  /** Sent with every request, over the kind's own. */
  headers: Readonly<Record<string, string>>;
  timeouts: ProviderTimeouts;
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
