import { type MicroCredits, minimum } from "./amount.ts";
import type { Draw } from "./books.ts";

/** Parts draws after the first `amount` of them. */
export function splitDraws(draws: readonly Draw[], amount: MicroCredits): { front: Draw[]; rest: Draw[] } {
  const front: Draw[] = [];
  const rest: Draw[] = [];
  let left = amount;
  for (const draw of draws) {
    const kept = minimum(draw.amount, left);
    left -= kept;
    if (kept > 0n) front.push({ grantId: draw.grantId, amount: kept });
    if (kept < draw.amount) rest.push({ grantId: draw.grantId, amount: draw.amount - kept });
  }
  return { front, rest };
}

/** Names every grant once, in the order of its first draw. */
export function mergeDraws(draws: readonly Draw[], more: readonly Draw[]): Draw[] {
  if (more.length === 0) return [...draws];
  const amounts = new Map<string, MicroCredits>();
  for (const { grantId, amount } of [...draws, ...more]) amounts.set(grantId, (amounts.get(grantId) ?? 0n) + amount);
  return [...amounts].map(([grantId, amount]) => ({ grantId, amount }));
}

export function sumOf(draws: readonly Draw[]): MicroCredits {
  return draws.reduce((sum, draw) => sum + draw.amount, 0n);
}
