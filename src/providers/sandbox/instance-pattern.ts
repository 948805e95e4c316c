import { UnsupportedSchemaError, type Work } from "./work.ts";

/** Characters of the longest text that the sandbox writes for one value. */
export const TEXT_LENGTH_MAX = 10_000;
const PATTERN_LENGTH_MAX = 500;

/**
 * A part of a pattern that can write a text that it matches. `extra` says how often more than the least its repeatable
 * parts are repeated. Lengths are numbers of code points, and are known without writing the text.
 */
interface Part {
  /** Length with an `extra` of 0. */
  readonly shortest: number;
  lengthWith(extra: number): number;
  write(extra: number): string;
}

/**
 * Parses a regular expression into parts that write texts that it matches, the shortest first. Supports literals,
 * classes, groups, alternatives, anchors at the ends and all quantifiers, and refuses anything else. The pattern is
 * never run as a regular expression. Throws UnsupportedSchemaError.
 */
export function parsePattern(pattern: string, work: Work): Part {
  if (pattern.length > PATTERN_LENGTH_MAX) throw new UnsupportedSchemaError("a pattern is too long");
  work.spend(pattern.length * STEPS_A_CHARACTER);
  return new PatternParser(pattern, work).parse();
}

const STEPS_A_CHARACTER = 8;

class Literal implements Part {
  readonly shortest = 1;
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  lengthWith(): number {
    return 1;
  }

  write(): string {
    return this.#text;
  }
}

class Sequence implements Part {
  readonly shortest: number;
  readonly #parts: readonly Part[];
  readonly #work: Work;

  constructor(parts: readonly Part[], work: Work) {
    this.#parts = parts;
    this.#work = work;
    this.shortest = parts.reduce((length, part) => length + part.shortest, 0);
  }

  lengthWith(extra: number): number {
    this.#work.spend(this.#parts.length + 1);
    return this.#parts.reduce((length, part) => length + part.lengthWith(extra), 0);
  }

  write(extra: number): string {
    this.#work.spend(this.#parts.length + 1);
    return this.#parts.map((part) => part.write(extra)).join("");
  }
}

class Repeated implements Part {
  readonly shortest: number;
  readonly #part: Part;
  readonly #least: number;
  readonly #most: number;

  constructor(part: Part, [least, most]: readonly [number, number]) {
    this.#part = part;
    this.#least = least;
    this.#most = most;
    this.shortest = least * part.shortest;
  }

  lengthWith(extra: number): number {
    return this.#countWith(extra) * this.#part.shortest;
  }

  write(extra: number): string {
    const count = this.#countWith(extra);
    return count === 0 || this.#part.shortest === 0 ? "" : this.#part.write(0).repeat(count);
  }

  #countWith(extra: number): number {
    return Math.min(this.#most, this.#least + extra);
  }
}

class PatternParser {
  readonly #characters: readonly string[];
  readonly #work: Work;
  #at = 0;
  #depth = 0;

  constructor(pattern: string, work: Work) {
    this.#characters = [...pattern];
    this.#work = work;
  }

  parse(): Part {
    const part = this.#alternatives();
    if (this.#at < this.#characters.length) this.#refuse();
    return part;
  }

  /** Keeps the first alternative: a text that it matches is enough. */
  #alternatives(): Part {
    const first = this.#sequence();
    while (this.#take("|")) this.#sequence();
    return first;
  }

  /** Takes anchors only outside of groups, where they are surely at an end of the text. */
  #sequence(): Part {
    const parts: Part[] = [];
    if (this.#depth === 0) this.#take("^");
    while (this.#at < this.#characters.length && !this.#isAhead("|") && !this.#isAhead(")")) {
      if (this.#take("$")) {
        const isLast = this.#at === this.#characters.length || this.#isAhead("|");
        if (!isLast || this.#depth > 0) this.#refuse();
      } else parts.push(this.#quantified(this.#atom()));
    }
    return new Sequence(parts, this.#work);
  }

  #quantified(part: Part): Part {
    const quantifier = this.#quantifier();
    return quantifier === undefined ? part : new Repeated(part, quantifier);
  }

  #quantifier(): [number, number] | undefined {
    const rest = this.#characters.slice(this.#at, this.#at + 24).join("");
    const found = /^(?:([*+?])|\{(\d{1,6})(,(\d{0,6}))?\})\??/.exec(rest);
    if (found === null) return undefined;
    this.#at += found[0].length;
    const [, sign, least, comma, most] = found;
    if (sign !== undefined) return [sign === "+" ? 1 : 0, sign === "?" ? 1 : Number.POSITIVE_INFINITY];
    if (comma === undefined) return [Number(least), Number(least)];
    if (most === "") return [Number(least), Number.POSITIVE_INFINITY];
    if (Number(most) < Number(least)) this.#refuse();
    return [Number(least), Number(most)];
  }

  #atom(): Part {
    const character = this.#next();
    if (character === "(") return this.#group();
    if (character === "[") return new Literal(this.#class());
    if (character === ".") return new Literal("a");
    if (character === "\\") return new Literal(firstOf(this.#escape()));
    if ("*+?{}^]".includes(character)) this.#refuse();
    return new Literal(character);
  }

  #group(): Part {
    if (this.#take("?") && !this.#take(":")) {
      if (!this.#take("<") || this.#isAhead("=") || this.#isAhead("!")) this.#refuse();
      while (!this.#take(">")) this.#next();
    }
    this.#depth += 1;
    const part = this.#alternatives();
    this.#depth -= 1;
    if (!this.#take(")")) this.#refuse();
    return part;
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
      // A class escape is no end of a range: with the flag u such a pattern is a mistake.
      if (first.length !== 1 || last.length !== 1) this.#refuse();
      ranges.push([first[0]?.[0] ?? 0, last[0]?.[1] ?? 0]);
    }
    if (!isNegated) return firstOf(ranges);
    const free = [..."a0A _-~\u00e9\u4e00"].find((candidate) => !isIn(candidate, ranges));
    return free ?? this.#refuse();
  }

  /** One character of a class, or those that an escape stands for. */
  #member(): Range[] {
    if (!this.#take("\\")) return rangeOf(this.#next());
    if (["S", "D", "W"].some((character) => this.#isAhead(character))) this.#refuse();
    return this.#escape();
  }

  /** The characters that an escape stands for; the backslash was read. */
  #escape(): Range[] {
    const character = this.#next();
    if (character === "d") return DIGITS;
    if (character === "w") return [[97, 122], ...DIGITS, [65, 90], [95, 95]];
    if (character === "s")
      return [
        [32, 32],
        [9, 13],
      ];
    if (character === "n") return [[10, 10]];
    if (character === "t") return [[9, 9]];
    if (character === "S" || character === "D" || character === "W") {
      return character === "W" ? [[45, 45]] : [[97, 122]];
    }
    if (/[\w]/.test(character)) this.#refuse();
    return rangeOf(character);
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
const DIGITS: Range[] = [[48, 57]];

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
