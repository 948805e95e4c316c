import fc from "fast-check";
import { expect, test } from "vitest";
import { type MeasuredAnswer, OutputRates } from "./charge.ts";

const UPSTREAM = "up/m";
type Measured = Pick<MeasuredAnswer, "tokens" | "durationMs">;

function noteAll(rates: OutputRates, organizationId: string, answers: readonly Measured[]): void {
  const one = { upstream: UPSTREAM, organizationId, choices: 1, choicesAsked: 1 };
  for (const answer of answers) rates.note({ ...one, ...answer });
}

const equal = (count: number, tokens: number, durationMs: number) =>
  Array<Measured>(count).fill({ tokens, durationMs });

/** The smallest value that at least this part of the values does not exceed. */
const rank = (values: number[], part: number) =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * part) - 1] ?? 0;
const rateOf = (answers: readonly Measured[]) =>
  rank(
    answers.map(({ tokens, durationMs }) => tokens / Math.max(1, durationMs)),
    0.5,
  );
const longestOf = (answers: readonly Measured[]) =>
  rank(
    answers.map(({ tokens }) => tokens),
    0.95,
  );

const measured = fc.record({ tokens: fc.nat(10_000), durationMs: fc.nat(60_000) });
const manyAnswers = fc.array(measured, { minLength: 100, maxLength: 300 });

test("The estimate is 50 tokens per second and at most 4,096 until 100 answers of an upstream are known.", () => {
  const rates = new OutputRates();
  noteAll(rates, "org_a", equal(60, 1_000, 1_000));
  noteAll(rates, "org_b", equal(39, 1_000, 1_000));
  expect(rates.estimate(UPSTREAM, 10_000)).toBe(500);
  expect(rates.estimate(UPSTREAM, 10 ** 9)).toBe(4_096);
  noteAll(rates, "org_b", equal(1, 1_000, 1_000));
  expect(rates.estimate(UPSTREAM, 500)).toBe(500);
  expect(rates.estimate(UPSTREAM, 10 ** 9)).toBe(1_000);
  expect(rates.estimate("up/other", 10_000)).toBe(500);
});

test("The estimate is the median of the organizations' median rates, and at most that of their 95th percentiles.", () => {
  fc.assert(
    fc.property(fc.array(manyAnswers, { minLength: 1, maxLength: 5 }), fc.nat(100_000), (organizations, elapsedMs) => {
      const rates = new OutputRates();
      for (const [index, answers] of organizations.entries()) noteAll(rates, `org_${index}`, answers);
      const newest = organizations.map((answers) => answers.slice(-128));
      const rate = rank(newest.map(rateOf), 0.5);
      const longest = rank(newest.map(longestOf), 0.5);
      expect(rates.estimate(UPSTREAM, elapsedMs)).toBe(Math.floor(Math.min(longest, elapsedMs * rate)));
    }),
    { numRuns: 100 },
  );
});

test("One organization cannot move the estimate beyond those of two others, however many answers it gets.", () => {
  fc.assert(
    fc.property(manyAnswers, manyAnswers, manyAnswers, fc.nat(100_000), (one, other, third, elapsedMs) => {
      const estimate = (...organizations: (readonly Measured[])[]) => {
        const rates = new OutputRates();
        for (const [index, answers] of organizations.entries()) noteAll(rates, `org_${index}`, answers);
        return rates.estimate(UPSTREAM, elapsedMs);
      };
      const honest = [one, other].map((answers) => answers.slice(-128));
      const [rates, longest] = [honest.map(rateOf), honest.map(longestOf)];
      const bound = (of: (...values: number[]) => number) =>
        Math.floor(Math.min(of(...longest), elapsedMs * of(...rates)));
      expect(estimate(one, other, third)).toBeGreaterThanOrEqual(bound(Math.min));
      expect(estimate(one, other, third)).toBeLessThanOrEqual(bound(Math.max));
    }),
    { numRuns: 100 },
  );
});

test("The newest answers of an organization, and of 64 organizations of an upstream, are remembered.", () => {
  const rates = new OutputRates();
  noteAll(rates, "org_old", equal(128, 100, 1_000));
  noteAll(rates, "org_old", equal(128, 900, 1_000));
  expect(rates.estimate(UPSTREAM, 1_000)).toBe(900);
  for (let index = 0; index < 64; index += 1) noteAll(rates, `org_${index}`, equal(2, index < 32 ? 100 : 200, 1_000));
  expect(rates.estimate(UPSTREAM, 1_000)).toBe(100);
  noteAll(rates, "org_new", equal(1, 200, 1_000));
  expect(rates.estimate(UPSTREAM, 1_000)).toBe(200);
});

test("The figures are those of one choice, by the choices that arrived and not by those of the request.", () => {
  const rates = new OutputRates();
  const answer = { upstream: UPSTREAM, organizationId: "org_a", durationMs: 1_000, choicesAsked: 8 };
  for (let count = 0; count < 100; count += 1) rates.note({ ...answer, tokens: 800, choices: 1 });
  expect(rates.estimate(UPSTREAM, 1_000)).toBe(800);
  for (let count = 0; count < 128; count += 1) rates.note({ ...answer, tokens: 800, choices: 8 });
  expect(rates.estimate(UPSTREAM, 1_000)).toBe(100);
});

test("An upstream writes the median share of several choices, and one if it wrote one.", () => {
  const rates = new OutputRates();
  const answer = { upstream: UPSTREAM, organizationId: "org_a", tokens: 10, durationMs: 1_000 };
  const after = (choicesAsked: number, choices: number) => {
    rates.note({ ...answer, choicesAsked, choices });
    return rates.choicesOf(UPSTREAM, 8);
  };
  expect(rates.choicesOf(UPSTREAM, 8)).toBe(1);
  expect([after(1, 1), after(2, 2), after(1, 1), after(8, 1), after(8, 2), after(8, 2)]).toEqual([1, 8, 8, 1, 2, 2]);
  expect(rates.choicesOf("up/other", 8)).toBe(1);
});

test("No organization sets the share of choices of another, however many answers it gets.", () => {
  const rates = new OutputRates();
  const answer = { upstream: UPSTREAM, tokens: 10, durationMs: 1_000, choicesAsked: 8 };
  for (const organizationId of ["org_a", "org_b"]) rates.note({ ...answer, organizationId, choices: 4 });
  for (let count = 0; count < 200; count += 1) rates.note({ ...answer, organizationId: "org_c", choices: 1 });
  expect(rates.choicesOf(UPSTREAM, 8)).toBe(4);
});

test("The estimate is 0 after the clock was set back.", () => {
  expect(new OutputRates().estimate(UPSTREAM, -5_000)).toBe(0);
});
