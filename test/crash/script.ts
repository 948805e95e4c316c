/**
 * Instructions of one request to the upstream. It travels to it as the text of the prompt, so that the service between them
 * has no part in it.
 */
export interface Script {
  /** `TRIAL-NUMBER`, unique in a run. */
  id: string;
  /** Pieces of the answer; each is one token. */
  words: number;
  /** Between two pieces; an answer in one piece takes as long in all. */
  paceMs: number;
  /** Usage that the upstream reports; null: none. */
  usage: Usage | null;
  /** Point at which the upstream stops sending: before it answers, after half of its chunks, or after its usage. */
  silence: "start" | "middle" | "usage" | null;
  /** After so many pieces of a stream the upstream waits until the trial is let go; null: it does not. */
  waitsAfterWords: number | null;
  /** Bytes that an unstreamed answer has in addition to its text. */
  paddingBytes: number;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

export const WORD = " word";
/** The upstream's path for the trials whose streams wait, followed by the trial. */
export const LETS_GO = "/lets-go/";

export function trialOf(id: string): string {
  return id.slice(0, id.lastIndexOf("-"));
}

/** One line of the upstream's log: what it did for a request, and when (milliseconds since 1970). */
export interface UpstreamLine {
  id: string;
  at: number;
  did: "was asked" | "sent a word" | "sent usage" | "sent all" | "was left";
}

/** One line of the clients' log. */
export interface ClientLine {
  id: string;
  at: number;
  got: "nothing yet" | "status" | "word" | "usage" | "all" | "error" | "cut" | "gave up";
  /** Request of a `nothing yet` entry. */
  request?: { streamed: boolean; organizationId: string; script: Script };
  status?: number;
  /** Code of an error in the answer, streamed or not. */
  code?: string;
  usage?: ReportedUsage;
  /** Pieces that came at once. */
  words?: number;
}

export interface ReportedUsage extends Usage {
  /** Credits. */
  cost: number;
}
