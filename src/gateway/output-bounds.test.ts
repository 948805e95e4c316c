import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_TOKENS_DEFAULT } from "../api/request.ts";
import { defaultOutputTokens, refuseAboveModel, refuseAboveSetting } from "./output-bounds.ts";

const tokens = fc.integer({ min: 1, max: 1_000_000 });
const setting = fc.oneof(tokens, fc.constant("model" as const));
const model = fc.record({ maxOutputTokens: tokens, contextWindow: tokens });
const estimate = fc
  .record({ likely: tokens, factor: fc.integer({ min: 1, max: 8 }) })
  .map(({ likely, factor }) => ({ least: Math.ceil(likely / 4), likely, likelyBesideText: 7, most: likely * factor }));

describe("the output of a request that states no bound", () => {
  test("is never more than the setting, the model's maximum or the context, and never less than a token", () => {
    fc.assert(
      fc.property(setting, model, estimate, (completionMaxTokens, limits, prompt) => {
        const found = defaultOutputTokens({ completionMaxTokens }, limits, prompt);
        expect(found).toBeGreaterThanOrEqual(1);
        expect(found).toBeLessThanOrEqual(limits.maxOutputTokens);
        if (completionMaxTokens !== "model") expect(found).toBeLessThanOrEqual(completionMaxTokens);
        expect(found).toBeLessThanOrEqual(Math.max(1, limits.contextWindow - prompt.likely));
      }),
    );
  });

  test("is by default the smallest of the default, the model's maximum and what the likely prompt leaves", () => {
    fc.assert(
      fc.property(model, estimate, (limits, prompt) => {
        const found = defaultOutputTokens({ completionMaxTokens: MAX_TOKENS_DEFAULT }, limits, prompt);
        const room = limits.contextWindow - prompt.likely;
        expect(found).toBe(Math.max(1, Math.min(MAX_TOKENS_DEFAULT, limits.maxOutputTokens, room)));
      }),
    );
  });

  test("is accepted as a bound that is stated, by the setting and by the model", () => {
    fc.assert(
      fc.property(setting, model, estimate, (completionMaxTokens, limits, prompt) => {
        const request = {
          model: "m",
          messages: [],
          max_tokens: defaultOutputTokens({ completionMaxTokens }, limits, prompt),
        };
        expect(() => refuseAboveSetting({ completionMaxTokens }, request)).not.toThrow();
        expect(() => refuseAboveModel(request, limits)).not.toThrow();
      }),
    );
  });
});

test("a stated bound is refused exactly where it is above what its name allows", () => {
  const request = { model: "m", messages: [] };
  fc.assert(
    fc.property(setting, model, tokens, (completionMaxTokens, limits, asked) => {
      const isRefused = (fields: object) => {
        try {
          refuseAboveSetting({ completionMaxTokens }, { ...request, ...fields });
          refuseAboveModel({ ...request, ...fields }, limits);
          return false;
        } catch {
          return true;
        }
      };
      const isAboveSetting = completionMaxTokens !== "model" && asked > completionMaxTokens;
      const isAboveModel = asked > limits.maxOutputTokens;
      expect(isRefused({ max_tokens: asked })).toBe(isAboveSetting || isAboveModel);
      expect(isRefused({ max_completion_tokens: asked })).toBe(isAboveModel);
    }),
  );
});
