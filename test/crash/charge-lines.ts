const CODES = ["i", "c", "w", "o", "r"];
/** The class whose price a class has that states none, by its place. */
const USUAL = [undefined, 0, 0, undefined, 3];

/**
 * Reads a stored charge (docs/ledger.md, "Charges") without the service's own code: tokens and prices of input, cached
 * input, cache writes, output and reasoning. Throws for a class that the trials do not use.
 */
export function linesOf(charge: string): { tokens: bigint[]; prices: bigint[] } {
  const tokens = CODES.map(() => 0n);
  const stated = new Map<number, bigint>();
  const [lines = ""] = charge.split(" {");
  for (const line of lines.split(" ").filter((part) => part !== "")) {
    const [head = "", price] = line.split("@");
    const place = CODES.indexOf(head.charAt(0));
    if (place < 0) throw new Error(`the charge ${charge} has an unknown class`);
    tokens[place] = BigInt(head.slice(1));
    if (price !== undefined) stated.set(place, BigInt(price));
  }
  const prices = USUAL.map(
    (usual, place) => stated.get(place) ?? (usual === undefined ? 0n : (stated.get(usual) ?? 0n)),
  );
  return { tokens, prices };
}
