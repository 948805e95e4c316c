import { UnsupportedSchemaError, type Work } from "./work.ts";

/** Limit of the characters that the sandbox writes for one value. */
export const TEXT_LENGTH_MAX = 10_000;
const PATTERN_LENGTH_MAX = 500;
const STEPS_A_CHARACTER = 8;

/**
 * Writes a text that a regular expression matches: the first alternative, the fewest repetitions. Supports literals,
 * classes, groups, alternatives, quantifiers, and anchors at the ends. The pattern is never run as a regular expression.
 * Throws UnsupportedSchemaError for any other part, and for a text that would be too long.
 */
export function textMatching(pattern: string, work: Work): string {
  if (pattern.length > PATTERN_LENGTH_MAX) throw new UnsupportedSchemaError("a pattern is too long");
  work.spend(pattern.length * STEPS_A_CHARACTER);
  return new PatternWriter(pattern, work).write();
}

class PatternWriter {
  readonly #characters: readonly string[];
  readonly #work: Work;
  #at = 0;
  #depth = 0;

  constructor(pattern: string, work: Work) {
    this.#characters = [...pattern];
    this.#work = work;
  }

  write(): string {
    const text = this.#alternatives();
    if (this.#at < this.#characters.length) this.#refuse();
    return text;
  }

  #alternatives(): string {
    const first = this.#sequence();
    while (this.#take("|")) this.#sequence();
    return first;
  }

  /** Accepts anchors only outside of groups, where they are certain to be at an end of the text. */
  #sequence(): string {
    let text = "";
    if (this.#depth === 0) this.#take("^");
    while (this.#at < this.#characters.length && !this.#isAhead("|") && !this.#isAhead(")")) {
      if (this.#take("$")) {
        const isLast = this.#at === this.#characters.length || this.#isAhead("|");
        if (!isLast || this.#depth > 0) this.#refuse();
      } else text += this.#repeated(this.#atom());
      if (text.length > TEXT_LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
    }
    return text;
  }

  /** Repeats an atom as few times as the quantifier after it allows; once if there is no quantifier. */
  #repeated(text: string): string {
    const ahead = this.#characters.slice(this.#at, this.#at + 24).join("");
    const found = /^(?:([*+?])|\{(\d{1,6})(?:,(\d{0,6}))?\})\??/.exec(ahead);
    if (found === null) return text;
    this.#at += found[0].length;
    const [, sign, least, most] = found;
    if (sign !== undefined) return sign === "+" ? text : "";
    if (most && Number(most) < Number(least)) this.#refuse();
    const length = text.length * Number(least);
    if (length > TEXT_LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
    this.#work.spend(length);
    return text.repeat(Number(least));
  }

  #atom(): string {
    const character = this.#next();
    if (character === "(") return this.#group();
    if (character === "[") return this.#class();
    if (character === ".") return "a";
    if (character === "\\") return firstOf(this.#escape());
    if ("*+?{}^]".includes(character)) this.#refuse();
    return character;
  }

  #group(): string {
    if (this.#take("?") && !this.#take(":")) {
      if (!this.#take("<") || this.#isAhead("=") || this.#isAhead("!")) this.#refuse();
      while (!this.#take(">")) this.#next();
    }
    this.#depth += 1;
    const text = this.#alternatives();
    this.#depth -= 1;
    if (!this.#take(")")) this.#refuse();
    return text;
  }

  #class(): string {
    const isNegated = this.#take("^");
    const ranges: Range[] = [];
    while (!this.#take("]")) {
      const first = this.#member();
      const isRange = this.#isAhead("-") && this.#characters[this.#at + 1] !== "]";
      if (!isRange) {
        ranges.push(...first);
        continue;
      }
      this.#next();
      const last = this.#member();
      // A class escape cannot be an end of a range.
      if (first.length !== 1 || last.length !== 1) this.#refuse();
      ranges.push([first[0]?.[0] ?? 0, last[0]?.[1] ?? 0]);
    }
    if (!isNegated) return firstOf(ranges);
    const free = [..."a0A _-~\u00e9\u4e00"].find((candidate) => !isIn(candidate, ranges));
    return free ?? this.#refuse();
  }

  /** Reads one character of a class, or an escape for several characters. */
  #member(): Range[] {
    if (!this.#take("\\")) return rangeOf(this.#next());
    if (["S", "D", "W"].some((character) => this.#isAhead(character))) this.#refuse();
    return this.#escape();
  }

  /** Reads an escape after its backslash. Returns the characters that it matches. */
  #escape(): Range[] {
    const character = this.#next();
    const known = Object.hasOwn(ESCAPES, character) ? ESCAPES[character] : undefined;
    if (known === undefined && /\w/.test(character)) this.#refuse();
    return known ?? rangeOf(character);
  }

  #isAhead(character: string): boolean {
    return this.#characters[this.#at] === character;
  }

  #take(character: string): boolean {
    if (!this.#isAhead(character)) return false;
    this.#at += 1;
    return true;
  }

  #next(): string {
    const character = this.#characters[this.#at];
    if (character === undefined) return this.#refuse();
    this.#at += 1;
    return character;
  }

  #refuse(): never {
    throw new UnsupportedSchemaError("a pattern has a part that is not supported");
  }
}

/** The first and the last code point. */
type Range = [number, number];

/** Escapes of classes; of the negated ones, some characters. */
const ESCAPES: Readonly<Record<string, Range[]>> = {
  d: [[48, 57]],
  D: [[97, 122]],
  n: [[10, 10]],
  s: [
    [32, 32],
    [9, 13],
  ],
  S: [[97, 122]],
  t: [[9, 9]],
  w: [
    [97, 122],
    [48, 57],
    [65, 90],
    [95, 95],
  ],
  W: [[45, 45]],
};

function rangeOf(character: string): Range[] {
  const point = character.codePointAt(0) ?? 0;
  return [[point, point]];
}

function firstOf(ranges: readonly Range[]): string {
  const [first] = ranges;
  if (first === undefined) throw new UnsupportedSchemaError("a pattern matches nothing");
  return String.fromCodePoint(first[0]);
}

function isIn(character: string, ranges: readonly Range[]): boolean {
  const point = character.codePointAt(0) ?? 0;
  return ranges.some(([first, last]) => first <= point && point <= last);
}
