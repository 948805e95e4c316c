/**
 * Position of the first occurrence of a text, -1 where there is none. Takes time in proportion to both lengths, whatever
 * they hold (Knuth, Morris and Pratt, 1977): `indexOf` takes seconds for long texts that nearly match.
 */
export function indexOfFirst(wanted: string, text: string): number {
  if (wanted === "") return 0;
  if (wanted.length > text.length) return -1;
  const borders = bordersOf(wanted);
  let matched = 0;
  for (let at = 0; at < text.length; at += 1) {
    while (matched > 0 && wanted.charCodeAt(matched) !== text.charCodeAt(at)) matched = borders[matched - 1] ?? 0;
    if (wanted.charCodeAt(matched) === text.charCodeAt(at)) matched += 1;
    if (matched === wanted.length) return at + 1 - matched;
  }
  return -1;
}

/** For each beginning of a text, the length of the longest shorter text that it begins and ends with. */
function bordersOf(text: string): Uint32Array {
  const borders = new Uint32Array(text.length);
  let length = 0;
  for (let at = 1; at < text.length; at += 1) {
    while (length > 0 && text.charCodeAt(length) !== text.charCodeAt(at)) length = borders[length - 1] ?? 0;
    if (text.charCodeAt(length) === text.charCodeAt(at)) length += 1;
    borders[at] = length;
  }
  return borders;
}
