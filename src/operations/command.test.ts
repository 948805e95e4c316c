import { describe, expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import { expiry, facts, futureDate, overlapSeconds, table, wordOf } from "./command.ts";

test("text is aligned to the left, numbers to the right", () => {
  expect(
    table(
      ["ID", "CREDITS"],
      [
        ["org_a", "100"],
        ["org_longer", "0.5"],
      ],
    ),
  ).toBe("ID          CREDITS\norg_a           100\norg_longer      0.5");
});

test("a table without rows has only its headings", () => {
  expect(table(["ID", "NAME"], [])).toBe("ID  NAME");
});

test("the values of facts are aligned", () => {
  expect(facts({ id: "org_a", credits: "1 of 2 available" })).toBe("id       org_a\ncredits  1 of 2 available");
});

const NOW = Date.UTC(2030, 0, 1);

describe("overlaps", () => {
  test.each([
    ["0", 0],
    ["1s", 1],
    ["90m", 5_400],
    ["12h", 43_200],
    ["30d", 2_592_000],
    ["2w", 1_209_600],
  ])("%s", (text, seconds) => {
    expect(overlapSeconds(text, "--overlap")).toBe(seconds);
  });

  test.each(["", "1", "1 h", "-1h", "1.5h", "h", "1y", "9999999d"])("%j is not a duration", (text) => {
    expect(() => overlapSeconds(text, "--overlap")).toThrow(
      new OperatorError(
        `--overlap is ${JSON.stringify(text)}, but must be a number with s, m, h, d or w, such as 90m or 30d.`,
      ),
    );
  });
});

test.each(["5w", "31d", "43201m"])("an overlap of %s is longer than the API allows, and refused", (text) => {
  const message = `--overlap is ${JSON.stringify(text)}, but must be at most 30d.`;
  expect(() => overlapSeconds(text, "--overlap")).toThrow(new OperatorError(message));
});

describe("dates in the future", () => {
  test.each([
    ["30d", NOW + 2_592_000_000],
    ["2030-01-02", NOW + 86_400_000],
    ["2030-01-01T01:00Z", NOW + 3_600_000],
    ["2030-01-01T01:00:00.500+01:00", NOW + 500],
  ])("%s", (text, timeMs) => {
    expect(expiry(text, "--expires", NOW)).toBe(new Date(timeMs).toISOString());
  });

  test.each(["tomorrow", "", "2030-02-30", "2030-13-01", "2030-01-02 10:00", "2030-01-02T10:00", "1893456000000"])(
    "%j is none",
    (text) => {
      expect(() => expiry(text, "--expires", NOW)).toThrow(/^--expires is ".*", but must be a number with s, m/);
      expect(() => futureDate(text, "--expires", NOW)).toThrow(/^--expires is ".*", but must be a date as YYYY-MM-DD/);
    },
  );

  test.each(["2030-01-01", "2029-12-31", "0d"])("%s is not in the future", (text) => {
    expect(() => expiry(text, "--expires", NOW)).toThrow(/but must be a time in the future\.$/);
  });

  test("a flag for a duration refuses a date, and a flag for a date refuses a duration", () => {
    expect(() => overlapSeconds("2030-01-02", "--overlap")).toThrow(OperatorError);
    expect(() => futureDate("30d", "--expires", NOW)).toThrow(OperatorError);
  });
});

test("a refused word is reported with the words that are allowed", () => {
  const windowOf = wordOf(["day", "week", "month"]);
  expect(windowOf("week", "--window", NOW)).toBe("week");
  expect(() => windowOf("year", "--window", NOW)).toThrow('--window is "year", but must be one of: day, week, month.');
  expect(() => wordOf(["a", "b"])("c", "--role", NOW)).toThrow('--role is "c", but must be a or b.');
});
