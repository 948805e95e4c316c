const SENTENCES: readonly string[] = [
  "The toll keeper counted every coin twice before the gate was opened.",
  "A small boat waited below the bridge, and nobody could say for whom.",
  "Rain had washed the numbers from the board, so the price was asked aloud.",
  "She paid for one crossing and kept the receipt in her coat.",
  "On the far side the road divided, and both ways were marked as the shorter one.",
  "The ledger lay open on the table, its last line still wet.",
  "Someone had written a name in the margin and then thought better of it.",
  "By evening the queue reached back to the old mill.",
  "The lamp above the gate burned low, but it burned.",
  "He remembered the price of every journey and the reason for none.",
  "In the morning the river was quiet, as if nothing had been owed.",
];
const SENTENCES_A_PARAGRAPH = 5;

/** The tokens of a story without an end: always the same for the same seed. */
export function* story(seed: number): Generator<string, undefined> {
  let state = (Math.abs(Math.trunc(seed)) % 2_147_483_647) + 1;
  for (let told = 1; ; told += 1) {
    // Park and Miller's "minimal standard" generator: any spread of the sentences would do, as long as it repeats.
    state = (state * 48_271) % 2_147_483_647;
    const sentence = SENTENCES[state % SENTENCES.length] ?? "";
    const words = sentence.split(" ");
    for (const word of words.slice(0, -1)) yield `${word} `;
    yield `${words.at(-1)}${told % SENTENCES_A_PARAGRAPH === 0 ? "\n\n" : " "}`;
  }
}
