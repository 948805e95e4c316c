import fc from "fast-check";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { afterAll, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { statedOutput } from "../api/chat/decode.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { estimatePrompt } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { fittingOutputTokens, needsCount, refuseAboveWindow, wantedOutputTokens, withCount } from "./output-bound.ts";
import type { Plan } from "./plan.ts";
import { TokenCounter } from "./token-counter.ts";

const tokenCounter = new TokenCounter({ log: keepLog(), previewDeadlineMs: 600_000, pieceTimeoutMs: 600_000 });
afterAll(() => tokenCounter.stop());

/** Tokens that the service assumes around one message. */
const OVERHEAD = 32;
/** Usual tokens around one message. */
const TEMPLATE = 7;
const PROSE =
  "When the rain had stopped, the old gardener walked along the river and counted the boats below the bridge. ";
const CODE =
  "for (const [index, value] of entries.entries()) {\n\tif (value !== undefined) total[index] += value * 2;\n}\n";
const CHINESE = "雨停了以后，老园丁沿着河边散步，数着桥下的小船。孩子们在岸上放风筝，远处传来钟声。";
const texts = fc.oneof(
  ...[PROSE, CODE, CHINESE].map((text) => fc.integer({ min: 1, max: 1_000 }).map((times) => text.repeat(times))),
  fc.string({ minLength: 1, maxLength: 8_000, size: "max" }),
  fc
    .array(fc.constantFrom(PROSE, CODE, CHINESE, "0123456789abcdef", "\u{1f600}"), { minLength: 1, maxLength: 500 })
    .map((all) => all.join("")),
);

type Setting = Gateway["completionMaxTokens"];

/** Returns the bound that a request with a text is sent with, or the code of its refusal. */
async function boundOf(
  content: string,
  contextWindow: number,
  asked: number | undefined,
  completionMaxTokens: Setting,
) {
  const limits = { imageTokensMax: 4_800, contextWindow, maxOutputTokens: contextWindow };
  const request = { model: "m", messages: [{ role: "user" as const, content }] };
  const output = statedOutput({ ...request, ...(asked !== undefined && { max_completion_tokens: asked }) });
  const estimate = estimatePrompt(request, limits);
  const gateway = { completionMaxTokens, tokenCounter } as unknown as Gateway;
  const call = {
    principal: { organizationId: "org_a" },
    idempotency: null,
    signal: new AbortController().signal,
  } as unknown as GatewayCall;
  const model = limits as CatalogModel;
  const planned = { operation: "chat", model, output, estimate, promptTexts: () => [content] } as unknown as Plan;
  try {
    refuseAboveWindow(gateway, planned);
    const isCounted = needsCount(gateway, planned);
    const plan = isCounted ? await withCount(gateway, call, planned) : planned;
    const wanted = wantedOutputTokens(gateway, model, asked);
    return { isCounted, sent: fittingOutputTokens(wanted, asked !== undefined, model, plan.estimate) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { isCounted: true, code: error.code };
  }
}

test("A counted prompt and its bound fit into the context window, and the bound is lowered only as far as it must be.", async () => {
  let counted = 0;
  await fc.assert(
    fc.asyncProperty(
      texts,
      fc.double({ min: 0.5, max: 8, noNaN: true }),
      fc.option(fc.integer({ min: 1, max: 60_000 }), { nil: undefined }),
      fc.constantFrom<Setting[]>(4_096, "model"),
      async (text, factor, asked, setting) => {
        const tokens = countTokens(text, { disallowedSpecial: new Set<string>() });
        const window = Math.max(100, Math.round(tokens * factor));
        const wanted = Math.min(window, asked ?? (typeof setting === "number" ? setting : window));
        const { isCounted, sent, code } = await boundOf(text, window, asked, setting);
        if (sent === undefined) {
          expect(code).toBe("context_length_exceeded");
          // The count of pieces is a little higher than that of the whole.
          expect(tokens * 0.8 + OVERHEAD + Math.min(16, wanted)).toBeGreaterThan(window);
          return;
        }
        expect(sent).toBeLessThanOrEqual(wanted);
        expect(sent).toBeGreaterThanOrEqual(Math.min(16, wanted));
        // Without a count, a cautious estimate may cost a small part of the window.
        const uncounted = isCounted ? 0 : window / 32;
        expect(sent).toBeGreaterThanOrEqual(Math.min(wanted, window - tokens * 1.1 - OVERHEAD - uncounted));
        if (!isCounted) return;
        counted += 1;
        // Another tokenizer may have fewer tokens than a count that leaves no room.
        const isAbove = tokens + TEMPLATE + Math.min(16, wanted) > window;
        expect(sent + (isAbove ? tokens * 0.74 : tokens)).toBeLessThanOrEqual(window);
      },
    ),
    { numRuns: 300 },
  );
  expect(counted).toBeGreaterThan(50);
}, 600_000);

test("Without a count, only what is certain refuses a prompt, and a bound is not lowered below half of what is left.", async () => {
  const text = PROSE.repeat(300);
  const stopped = new TokenCounter({ log: keepLog() });
  await stopped.stop();
  const counter = tokenCounter.countPrompt;
  tokenCounter.countPrompt = (...of) => stopped.countPrompt(...of);
  const likely = Math.ceil(text.length / 4);
  expect(await boundOf(text, likely + 2_000, 4_000, "model")).toMatchObject({ sent: expect.closeTo(1_000, -2) });
  expect(await boundOf(text, likely - 100, 500, "model")).toEqual({ isCounted: true, sent: 500 });
  expect(await boundOf(text, Math.ceil(text.length / 17), 500, "model")).toMatchObject({
    code: "context_length_exceeded",
  });
  tokenCounter.countPrompt = counter;
});

test("Only the least refuses a prompt that was sampled, and the count shortens its answer.", async () => {
  // The samples are of the costly half alone.
  const text = "\u{1f9ff}\u{1f6d5}".repeat(50_000) + " ".repeat(200_000);
  const [count = 0] = (await tokenCounter.forCharges("org_a").count([[text]])) ?? [];
  expect(await boundOf(text, Math.floor(count / 2), 500, "model")).toMatchObject({ isCounted: true, sent: 500 });
  const least = Math.ceil(Buffer.byteLength(text) / 16);
  expect(await boundOf(text, least - 1, 500, "model")).toMatchObject({ code: "context_length_exceeded" });
  const { sent = 0 } = await boundOf(text, count + 5_000, count + 5_000, "model");
  expect(sent).toBeGreaterThan(0);
  expect(sent).toBeLessThanOrEqual(5_000);
});

test("A prompt whose count is above the window by less than tokenizers differ is sent with the stated bound.", async () => {
  const text = PROSE.repeat(300);
  const tokens = countTokens(text);
  expect(await boundOf(text, Math.round(tokens * 0.9), 500, "model")).toEqual({ isCounted: true, sent: 500 });
  expect(await boundOf(text, Math.round(tokens * 0.7), 500, "model")).toMatchObject({
    code: "context_length_exceeded",
  });
});
