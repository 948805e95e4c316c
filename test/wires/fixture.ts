import type { UpstreamRequest } from "../../src/providers/provider.ts";
import type { ProviderSettings } from "../../src/providers/settings.ts";

/** Format of the events of a stream. */
export type Framing =
  /** `data: {…}` */
  | "data"
  /** `event: <type>` and `data: {…}` */
  | "named"
  /** Frames of Amazon's event stream: each event is an object with one key, its type. */
  | "frames";

/** One answer in the format of a wire, whole and as the events of a stream. */
export interface Answer {
  whole: unknown;
  events: readonly unknown[];
}

export interface Asked {
  /** Fields that the upstream's request body must contain. */
  sent: object;
}

export interface ErrorShape {
  /** Description for the test's name. */
  what: string;
  status: number;
  headers?: Record<string, string>;
  body: unknown;
  failure: string;
  retryAfterSeconds?: number;
}

/** Token counts that every wire must report. */
export interface Counted {
  prompt_tokens: number;
  completion_tokens: number;
  cached_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  input_audio_tokens?: number;
  output_audio_tokens?: number;
}

/**
 * The facts about a wire that the suite uses: shapes from its documentation, and the results that they must lead to. A new
 * wire needs one of these, and no test code.
 */
export interface WireFixture {
  kind: string;
  /** The pages that the shapes were taken from. */
  documentation: readonly string[];
  settings: Partial<ProviderSettings>;
  /** Path after the server's address. */
  basePath: string;
  model: string;
  /** Further models, whose reasoning is configured differently. */
  thinkers: readonly string[];
  framing: Framing;
  /** The last event of a stream; absent: the wire has none. */
  end?: string;
  paths: { whole: RegExp; streamed: RegExp };
  /** Headers with the credentials. */
  credentials: Record<string, RegExp>;
  /** Counters that are a part of another one, by their names; absent: the wire counts no such part, or counts it apart. */
  parts?: { cached?: string; reasoning?: string };
  /** Says `TEXT`, with cached and reasoning tokens where the wire counts them. */
  text: Answer & { usage: Counted };
  /** Thinks `REASONING` where it can, says `WEATHER_INTRO` where it can, and calls `CALLS`. */
  tools: Answer & Asked;
  /** Fields of the second request, after the calls were answered. */
  secondTurn: object;
  /** Thinks before each of `CALLS`; absent: the wire does not sign what it thinks, or signs the calls themselves. */
  interleaved?: Answer & { secondTurn: object };
  /** Answers `JSON_TEXT` to `JSON_SCHEMA`. */
  structured: Answer & Asked;
  /** Says `TEXT` with `LOGPROBS`; absent: the wire tells none. */
  logprobs?: Answer & Asked;
  image: Asked;
  /** Undefined: the wire takes no address. */
  imageAddress: Asked | undefined;
  /** Fields of the body for `SETTINGS`, and the settings reported as ignored. */
  settingsSent: object;
  settingsIgnored: readonly string[];
  /** The fields of the body that bound the answer's tokens, summed. */
  bounds: readonly string[];
  /** Fields of the body for each tool choice; null: refused. */
  toolChoices: { required: object; named: object; none: object };
  errors: readonly ErrorShape[];
  /** An error in the middle of a stream, where the wire has one. */
  errorEvent?: { event: unknown; failure: string };
}

export const TEXT = "Hello from far away.";
export const LOGPROBS = [
  { token: "Hello ", logprob: -0.1, bytes: null, top_logprobs: [{ token: "Hi ", logprob: -2.5, bytes: null }] },
  { token: "from far away.", logprob: -0.2, bytes: null, top_logprobs: [] },
];
export const REASONING = "They ask for two cities.";
export const CALLS = [
  { name: "weather", arguments: { city: "Bern" } },
  { name: "weather", arguments: { city: "Chur" } },
] as const;
export const JSON_TEXT = '{"city":"Bern","warm":true}';

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
export const TOOLS: UpstreamRequest["tools"] = [
  { type: "function", function: { name: "weather", description: "Tells the weather.", parameters } },
];
export const JSON_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, warm: { type: "boolean" } },
  required: ["city", "warm"],
  additionalProperties: false,
};
/** One pixel. */
export const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
export const IMAGE_ADDRESS = "https://images.example/cat.png";
export const SETTINGS: Partial<UpstreamRequest> = {
  temperature: 0.5,
  stop: ["END"],
  seed: 7,
  presence_penalty: 0.25,
  frequency_penalty: 0.5,
  user: "someone",
};
