/**
 * A sandbox token is a word with the white space after it; white space before the first word belongs to that word. So
 * anyone can count by eye what a sandbox answer costs.
 */
export function* tokensOf(text: string): Generator<string, undefined> {
  const word = /\S+\s*/g;
  let start = 0;
  for (let found = word.exec(text); found !== null; found = word.exec(text)) {
    yield text.slice(start, word.lastIndex);
    start = word.lastIndex;
  }
}

/** How many tokens a text has. */
export function countTokens(text: string): number {
  const word = /\S+/g;
  let count = 0;
  while (word.test(text)) count += 1;
  return count;
}
