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

/** The newest answers of an organization. */
type Answers = { tokens: number; tokensAMillisecond: number }[];

/**
 * Measures how fast and how much each upstream writes, and estimates from this the output of an answer whose client
 * disconnected before it arrived. The figures of an upstream are medians of the figures of its organizations, so that no
 * organization sets the price of another, however many requests it sends.
 */
export class OutputRates {
  readonly #upstreams = new Map<string, LRUCache<string, Answers>>();

  note({ upstream, organizationId, tokens, durationMs }: MeasuredAnswer): void {
    const answers = this.#answersOf(upstream, organizationId);
    answers.push({ tokens, tokensAMillisecond: tokens / Math.max(1, durationMs) });
    if (answers.length > ANSWERS_KEPT) answers.shift();
  }

  /**
   * Estimates the output tokens that an upstream has written in a time: the time multiplied by the median of the
   * organizations' median rates, at most the median of the 95th percentiles of their answers. Before 100 answers are known,
   * 50 tokens a second and at most 4,096.
   */
  estimate(upstream: string, elapsedMs: number): number {
    const ms = Math.max(0, elapsedMs);
    const known = [...(this.#upstreams.get(upstream)?.values() ?? [])];
    if (known.reduce((sum, { length }) => sum + length, 0) < ANSWERS_LEAST) {
      return Math.min(USUAL_TOKENS_MAX, Math.floor((ms / 1000) * USUAL_TOKENS_A_SECOND));
    }
    const medianOf = (figure: keyof Answers[number], part: number) => {
      const figures = known.map((answers) => answers.map((answer) => answer[figure]));
      const ofEach = figures.map((own) => percentile(own, part));
      return percentile(ofEach, 0.5);
    };
    return Math.floor(Math.min(ms * medianOf("tokensAMillisecond", 0.5), medianOf("tokens", 0.95)));
  }

  #answersOf(upstream: string, organizationId: string): Answers {
    let organizations = this.#upstreams.get(upstream);
    if (organizations === undefined) {
      organizations = new LRUCache({ max: ORGANIZATIONS_KEPT });
      this.#upstreams.set(upstream, organizations);
    }
    let answers = organizations.get(organizationId);
    if (answers === undefined) {
      answers = [];
      organizations.set(organizationId, answers);
    }
    return answers;
  }
}

/** Returns the smallest value that at least this part of the values does not exceed. */
function percentile(values: readonly number[], part: number): number {
  return Float64Array.from(values).sort()[Math.ceil(values.length * part) - 1] ?? 0;
}
