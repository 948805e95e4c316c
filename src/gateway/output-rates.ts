import { LRUCache } from "lru-cache";

/** Organizations that are remembered for an upstream: those whose answers are the newest. */
const ORGANIZATIONS_KEPT = 64;
/** Answers that are remembered for an organization; the newest replace the oldest. */
const ANSWERS_KEPT = 128;
/** Answers of an upstream below which its figures are not used. */
const ANSWERS_LEAST = 100;
const USUAL_TOKENS_A_SECOND = 50;
const USUAL_TOKENS_MAX = 4_096;

/** A complete answer with reported usage. */
export interface MeasuredAnswer {
  upstream: string;
  organizationId: string;
  tokens: number;
  /** From the call of the upstream to the end of the answer. */
  durationMs: number;
}

interface Answers {
  tokens: Float64Array;
  tokensAMillisecond: Float64Array;
  count: number;
}

/**
 * Measures how fast and how much each upstream writes, and estimates from this the output of an answer whose client
 * disconnected before it arrived. The figures of an upstream are medians of the figures of its organizations, so that no
 * organization sets the price of another, however many requests it sends.
 */
export class OutputRates {
  readonly #upstreams = new Map<string, LRUCache<string, Answers>>();

  note({ upstream, organizationId, tokens, durationMs }: MeasuredAnswer): void {
    const answers = this.#answersOf(upstream, organizationId);
    const place = answers.count % ANSWERS_KEPT;
    answers.tokens[place] = tokens;
    answers.tokensAMillisecond[place] = tokens / Math.max(1, durationMs);
    answers.count += 1;
  }

  /**
   * Estimates the output tokens that an upstream has written in a time: the time multiplied by the median of the
   * organizations' median rates, at most the median of the 95th percentiles of their answers. Before 100 answers are known,
   * 50 tokens a second and at most 4,096.
   */
  estimate(upstream: string, elapsedMs: number): number {
    const ms = Math.max(0, elapsedMs);
    const known = [...(this.#upstreams.get(upstream)?.values() ?? [])].map(newest);
    if (known.reduce((sum, { tokens }) => sum + tokens.length, 0) < ANSWERS_LEAST) {
      return Math.min(USUAL_TOKENS_MAX, Math.floor((ms / 1000) * USUAL_TOKENS_A_SECOND));
    }
    const rate = medianOf(known.map(({ tokensAMillisecond }) => percentile(tokensAMillisecond, 0.5)));
    const longest = medianOf(known.map(({ tokens }) => percentile(tokens, 0.95)));
    return Math.floor(Math.min(ms * rate, longest));
  }

  #answersOf(upstream: string, organizationId: string): Answers {
    let organizations = this.#upstreams.get(upstream);
    if (organizations === undefined) {
      organizations = new LRUCache({ max: ORGANIZATIONS_KEPT });
      this.#upstreams.set(upstream, organizations);
    }
    let answers = organizations.get(organizationId);
    if (answers === undefined) {
      const [tokens, tokensAMillisecond] = [new Float64Array(ANSWERS_KEPT), new Float64Array(ANSWERS_KEPT)];
      answers = { tokens, tokensAMillisecond, count: 0 };
      organizations.set(organizationId, answers);
    }
    return answers;
  }
}

/** Returns copies of the remembered values. */
function newest({ tokens, tokensAMillisecond, count }: Answers): Pick<Answers, "tokens" | "tokensAMillisecond"> {
  return { tokens: tokens.slice(0, count), tokensAMillisecond: tokensAMillisecond.slice(0, count) };
}

function medianOf(values: readonly number[]): number {
  return percentile(Float64Array.from(values), 0.5);
}

/** Returns the smallest value that at least this part of the values does not exceed. Sorts them in place. */
function percentile(values: Float64Array, part: number): number {
  return values.sort()[Math.ceil(values.length * part) - 1] ?? 0;
}
