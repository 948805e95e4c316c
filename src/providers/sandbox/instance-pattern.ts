import { UnsupportedSchemaError } from "./unsupported.ts";

/** No text longer than this is made up. */
export const TEXT_LENGTH_MAX = 10_000;
const PATTERN_LENGTH_MAX = 500;

/** Makes a text of one part of a pattern; `extra` is how often more than the least its repeatable parts are repeated. */
type Part = (extra: number) => string;

/**
 * Makes texts that a regular expression matches, the shortest first. It knows literals, classes, groups, alternatives,
 * anchors at the ends and all quantifiers; anything else it refuses. The caller's pattern is never run: one that
 * takes forever must not stop the service. Throws UnsupportedSchemaError.
 */
export function readPattern(pattern: string): Part {
  if (pattern.length > PATTERN_LENGTH_MAX) throw new UnsupportedSchemaError("a pattern is too long");
  return new PatternParser(pattern).parse();
}

class PatternParser {
  readonly #characters: readonly string[];
  #at = 0;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  parse(): Part {
    const part = this.#alternatives();
    if (this.#at < this.#characters.length) this.#refuse();
    return part;
  }

  /** The first alternative stands for all. */
  #alternatives(): Part {
    const first = this.#sequence();
    while (this.#take("|")) this.#sequence();
    return first;
  }

  #sequence(): Part {
    const parts: Part[] = [];
    this.#take("^");
    while (this.#at < this.#characters.length && !this.#isAhead("|") && !this.#isAhead(")")) {
      if (this.#take("$")) {
        const isLast = this.#at === this.#characters.length || this.#isAhead("|") || this.#isAhead(")");
        if (!isLast) this.#refuse();
      } else parts.push(this.#quantified(this.#atom()));
    }
    return (extra) => parts.map((part) => part(extra)).join("");
  }

  #quantified(part: Part): Part {
    const [least, most] = this.#quantifier();
    return (extra) => {
      const count = Math.min(most, least + extra);
      const text = count === 0 ? "" : part(0);
      if (text.length * count > TEXT_LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
      return text.repeat(count);
    };
  }

  #quantifier(): [number, number] {
    const rest = this.#characters.slice(this.#at, this.#at + 24).join("");
    const found = /^(?:([*+?])|\{(\d{1,6})(,(\d{0,6}))?\})\??/.exec(rest);
    if (found === null) return [1, 1];
    this.#at += found[0].length;
    const [, sign, least, comma, most] = found;
    if (sign !== undefined) return [sign === "+" ? 1 : 0, sign === "?" ? 1 : Number.POSITIVE_INFINITY];
    if (comma === undefined) return [Number(least), Number(least)];
    return [Number(least), most === "" ? Number.POSITIVE_INFINITY : Number(most)];
  }

  #atom(): Part {
    const character = this.#next();
    if (character === "(") return this.#group();
    if (character === "[") return literal(this.#class());
    if (character === ".") return literal("a");
    if (character === "\\") return literal(firstOf(this.#escape()));
    if ("*+?{}^]".includes(character)) this.#refuse();
    return literal(character);
  }

  #group(): Part {
    if (this.#take("?") && !this.#take(":")) {
      if (!this.#take("<") || this.#isAhead("=") || this.#isAhead("!")) this.#refuse();
      while (!this.#take(">")) this.#next();
    }
    const part = this.#alternatives();
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
      ranges.push([first[0]?.[0] ?? 0, last[0]?.[1] ?? 0]);
    }
    if (!isNegated) return firstOf(ranges);
    const free = [..."a0A _-~\u00e9\u4e00"].find((candidate) => !isIn(candidate, ranges));
    return free ?? this.#refuse();
  }

  /** One character of a class, or those that an escape stands for. */
  #member(): Range[] {
    return this.#take("\\") ? this.#escape() : rangeOf(this.#next());
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

const literal =
  (text: string): Part =>
  () =>
    text;

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
