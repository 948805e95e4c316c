/** Answers of a route that are remembered; the newest replace the oldest. */
const ANSWERS_KEPT = 512;
/** Answers of a route without which its figures say nothing. */
const ANSWERS_LEAST = 100;
const USUAL_TOKENS_A_SECOND = 50;
const USUAL_TOKENS_MAX = 4_096;

interface Answers {
  tokens: Float64Array;
  tokensAMillisecond: Float64Array;
  count: number;
}

/**
 * How fast and how much each upstream writes, from the complete answers whose usage it reported. It stands in for output
 * that nobody saw: of an answer that its client left before it came.
 */
export class OutputRates {
  readonly #answers = new Map<string, Answers>();

  /** Notes a complete answer. `durationMs` is the time from the call of the upstream to the end of the answer. */
  note(upstream: string, tokens: number, durationMs: number): void {
    let answers = this.#answers.get(upstream);
    if (answers === undefined) {
      answers = {
        tokens: new Float64Array(ANSWERS_KEPT),
        tokensAMillisecond: new Float64Array(ANSWERS_KEPT),
        count: 0,
      };
      this.#answers.set(upstream, answers);
    }
    const place = answers.count % ANSWERS_KEPT;
    answers.tokens[place] = tokens;
    answers.tokensAMillisecond[place] = tokens / Math.max(1, durationMs);
    answers.count += 1;
  }

  /**
   * Output tokens that an upstream has likely written in a time: the time multiplied by its median rate, at most the 95th
   * percentile of its answers. Before 100 answers are known, 50 tokens a second and at most 4,096.
   */
  estimate(upstream: string, elapsedMs: number): number {
    const answers = this.#answers.get(upstream);
    const ms = Math.max(0, elapsedMs);
    if (answers === undefined || answers.count < ANSWERS_LEAST) {
      return Math.min(USUAL_TOKENS_MAX, Math.floor((ms / 1000) * USUAL_TOKENS_A_SECOND));
    }
    const known = Math.min(answers.count, ANSWERS_KEPT);
    const rate = percentile(answers.tokensAMillisecond.slice(0, known), 0.5);
    return Math.floor(Math.min(ms * rate, percentile(answers.tokens.slice(0, known), 0.95)));
  }
}

/** The smallest value that at least this part of the values does not exceed. Sorts them in place. */
function percentile(values: Float64Array, part: number): number {
  return values.sort()[Math.ceil(values.length * part) - 1] ?? 0;
}
