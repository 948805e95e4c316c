import { createHash, randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hashOfSession, idOfSession, isToken, makeId, makeToken } from "./token.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const counting = (start: number) => {
  let next = start;
  return (count: number) => Uint8Array.from({ length: count }, () => next++ % 256);
};

describe("a new token", () => {
  test("a new token has its prefix, 43 random characters and a checksum of six", () => {
    const { token, prefix, hash } = makeToken(counting(0));
    expect(token).toBe("sk-tg-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg139Yts");
    expect(token.startsWith(prefix)).toBe(true);
    expect(prefix).toHaveLength(12);
    expect(Buffer.from(hash)).toEqual(createHash("sha256").update(token).digest());
  });

  test("a new token is recognized", () => {
    for (let round = 0; round < 1000; round += 1) expect(isToken(makeToken(randomBytes).token)).toBe(true);
  });

  test("every character of the alphabet is equally likely", () => {
    const counts = new Map<string, number>();
    for (let start = 0; start < 256; start += 1) {
      const { token } = makeToken(() => Uint8Array.of(start));
      if (start < 248) expect(token.slice(6, 49)).toBe((ALPHABET[start % 62] ?? "").repeat(43));
      counts.set(token[6] ?? "", (counts.get(token[6] ?? "") ?? 0) + 1);
      if (start === 247) break;
    }
    expect([...counts.values()]).toEqual(Array.from({ length: 62 }, () => 4));
  });

  test("bytes that would make some characters more likely are discarded", () => {
    const bytes = [255, 248, 61];
    const { token } = makeToken((count) => Uint8Array.from({ length: count }, () => bytes.shift() ?? 0));
    expect(token.slice(6, 9)).toBe("z00");
  });
});

describe("text that is not a token", () => {
  const { token } = makeToken(counting(7));

  test("a token with one changed character or two swapped characters is refused", () => {
    for (let place = 0; place < token.length; place += 1) {
      for (const other of `${ALPHABET}-_ `) {
        if (other === token[place]) continue;
        expect(isToken(token.slice(0, place) + other + token.slice(place + 1))).toBe(false);
      }
      const swapped = token.slice(0, place) + (token[place + 1] ?? "") + token[place] + token.slice(place + 2);
      if (swapped !== token) expect(isToken(swapped)).toBe(false);
    }
  });

  test.each(["", "sk-tg-", token.slice(1), `${token}0`, `${token}\n`, ` ${token}`, token.toUpperCase(), "sk-proj-abc"])(
    "%j",
    (text) => {
      expect(isToken(text)).toBe(false);
    },
  );

  test("any other text is refused", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => !isToken(text)));
    fc.assert(fc.property(fc.stringMatching(/^sk-tg-[0-9A-Za-z]{49}$/), (text) => !isToken(text)));
  });
});

test("ids are lowercase and random", () => {
  const ids = Array.from({ length: 1000 }, () => makeId("org", randomBytes));
  for (const id of ids) expect(id).toMatch(/^org_[0-9a-z]{20}$/);
  expect(new Set(ids).size).toBe(1000);
});

test("the id of a session names its hash, and an id of another form names none", () => {
  const hash = randomBytes(32);
  const id = idOfSession({ hash });
  expect(hashOfSession(id)).toEqual(hash);
  for (const other of ["", id.slice(4), id.slice(0, -1), `${id}zz`, id.toUpperCase()]) {
    expect(hashOfSession(other)).toHaveLength(0);
  }
});
