/** The wires of upstreams. */
export type Wire = "chat" | "messages" | "responses" | "embeddings";
/** The endpoints that clients call. */
export type Inbound = Wire | "count_tokens";

/** A text of an answer. A client that received its mark received all of it. */
export interface Leaf {
  mark: string;
  text: string;
  /** True for the reply and its reasoning, which a provider's report covers; false for all other fields. */
  isText: boolean;
}

/** A part of an answer: what a stream sends of it, and its form in a whole answer. */
export interface Piece {
  events: object[];
  whole: Record<string, unknown>;
  leaves: Leaf[];
}

/** End of an upstream's answer. Those of the second row have no content. */
export type Ending =
  | "whole"
  | "cut"
  | "unfinished"
  | "error"
  | "garbage"
  | "cut at the end"
  | "refusal"
  | "failure"
  | "html"
  | "reset";

/** An upstream's report of usage, in the words of none of the wires. Values can be anything. */
export interface Report {
  prompt?: unknown;
  completion?: unknown;
  cached?: unknown;
  written?: unknown;
  reasoning?: unknown;
  /** Fields that no wire knows. */
  others?: object;
}

/** Reports of usage by their place in an answer. */
export interface Reports {
  kind: string;
  first?: Report;
  middle?: Report;
  last: Report[];
}

/** An answer that an upstream gives. */
export interface Answer {
  wire: Wire;
  pieces: Piece[];
  reports: Reports;
  ending: Ending;
  /** Number of pieces before an ending that breaks off. */
  endsAfter: number;
  finish: "stop" | "length" | "tools";
  pauseMs: number;
  /** True to write the bytes of a stream in halves that are split anywhere. */
  isSplit: boolean;
  /** Number of calls that fail before one is answered. */
  failsFirst: number;
}

/** Moment at which a client leaves. */
export type Leaving = { afterMs: number } | { afterMarks: number } | null;

/** Form in which a request is repeated with the same key. */
export type Repetition = "same" | "other body" | "other endpoint" | "sibling";

export interface Account {
  id: string;
  tokens: { token: string; tokenId: string }[];
  /** True if it has few credits. */
  isPoor: boolean;
}

/** One request that a client wants answered and paid for once. */
export interface Intent {
  id: string;
  inbound: Inbound;
  model: string;
  /** True for a model that reasons. */
  reasons: boolean;
  account: Account;
  tokenIndex: number;
  isStreamed: boolean;
  maxTokens: number;
  /** Credits, as text. */
  maxCost: string | null;
  key: string | null;
  prompt: string;
  answer: Answer;
  leaving: Leaving;
  repetitions: { repetition: Repetition; isAtOnce: boolean }[];
  calls: Call[];
  asks: Ask[];
}

/** A request as its client saw it. */
export interface Call {
  repetition: Repetition | "first";
  node: number;
  tokenId: string;
  sentAt: number;
  endedAt: number;
  status: number | undefined;
  requestId: string | undefined;
  /** Everything that was received. */
  text: string;
  end: "complete" | "error" | "left" | "cut" | undefined;
}

/** A request as the upstream saw it. */
export interface Ask {
  requestId: string;
  at: number;
  maxTokens: number;
  /** Number of pieces that were written. */
  written: number;
  /** Reports that were written, each with the number of pieces before it. */
  reports: { report: Report; after: number }[];
  /** True if this call failed before an answer. */
  hasFailed: boolean;
  isFinished: boolean;
}
