import type { MicroCredits } from "./amount.ts";
import { TOKEN_CLASSES, type TokenCounts } from "./price.ts";

/** What no transition may carry: a defect of its maker, so it throws. */
export function assertAmount(amount: MicroCredits): void {
  if (amount < 0n) throw new RangeError("an amount of credits is below 0");
}

export function assertCounts(tokens: TokenCounts): TokenCounts {
  const natural = TOKEN_CLASSES.every(
    (tokenClass) => Number.isSafeInteger(tokens[tokenClass]) && tokens[tokenClass] >= 0,
  );
  if (!natural) throw new RangeError("a count of tokens is not a natural number");
  return tokens;
}
