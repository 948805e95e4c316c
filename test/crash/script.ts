/**
 * Instructions of one request for the upstream. They are the text of the prompt, so that the service does not take part
 * in them.
 */
export interface Script {
  /** `TRIAL-NUMBER`, unique in a run. */
  id: string;
  /** Pieces of the answer; each is one token. */
  words: number;
  /** Time between two pieces; an unstreamed answer takes as long in total. */
  paceMs: number;
  /** Usage that the upstream reports; null for none. */
  usage: Usage | null;
  /** When the upstream stops responding: before it answers, after half of its pieces, or after its usage. */
  silence: "start" | "middle" | "usage" | null;
  /** Number of pieces after which the upstream waits until the trial is released; null if it does not wait. */
  waitsAfterWords: number | null;
  /** Additional length of an unstreamed answer besides its text. */
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

/** A line of the upstream's log: an action for a request, and its time (milliseconds since 1970). */
export interface UpstreamLine {
  id: string;
  at: number;
  did: "was asked" | "sent a word" | "sent usage" | "sent all" | "was left";
}

/** A line of the clients' log. */
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
  /** Number of pieces that arrived together. */
  words?: number;
}

export interface ReportedUsage extends Usage {
  /** Credits. */
  cost: number;
}
