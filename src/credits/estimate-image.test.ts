import { describe, expect, test } from "vitest";
import type { ChatCompletionRequest, ContentPart } from "../api/chat/request.ts";
import { IMAGE_TOKENS_MAX } from "../catalog/facts.ts";
import { estimatePrompt } from "./estimate.ts";

const LIMITS = { imageTokensMax: IMAGE_TOKENS_MAX, contextWindow: 200_000 };

describe("The estimate of an image", () => {
  const say = (text: string) => estimatePrompt({ model: "m", messages: [{ role: "user", content: text }] }, LIMITS);
  const shown = (url: string, detail?: "low" | "high") =>
    estimatePrompt(
      {
        model: "m",
        messages: [{ role: "user", content: [{ type: "image_url", image_url: { url, ...(detail && { detail }) } }] }],
      },
      LIMITS,
    );
  const likelyOf = (...image: Parameters<typeof shown>) => shown(...image).likely - say("").likely;
  const leastOf = (...image: Parameters<typeof shown>) => likelyOf(...image) - (shown(...image).lowDetailSavings ?? 0);
  const dataOf = (type: string, bytes: Buffer) => `data:image/${type};base64,${bytes.toString("base64")}`;
  const png = (width: number, height: number) => {
    const bytes = Buffer.alloc(64);
    bytes.writeUInt32BE(0x89504e47);
    bytes.writeUInt32BE(width, 16);
    bytes.writeUInt32BE(height, 20);
    return dataOf("png", bytes);
  };
  /** A segment of 60,000 bytes, as cameras write it, before the one that states the size. */
  const jpeg = (width: number, height: number) => {
    const bytes = Buffer.alloc(60_100);
    bytes.set([0xff, 0xd8, 0xff, 0xe1]);
    bytes.writeUInt16BE(60_000, 4);
    bytes.set([0xff, 0xc2, 0, 17, 8], 60_004);
    bytes.writeUInt16BE(height, 60_009);
    bytes.writeUInt16BE(width, 60_011);
    return dataOf("jpeg", bytes);
  };
  const gif = (width: number, height: number) => {
    const bytes = Buffer.alloc(64);
    bytes.write("GIF89a");
    bytes.writeUInt16LE(width, 6);
    bytes.writeUInt16LE(height, 8);
    return dataOf("gif", bytes);
  };

  test("does not depend on its length, and the bound is the model's.", () => {
    const unknown = (characters: number) => shown(`data:image/png;base64,${"A".repeat(characters)}`);
    expect(unknown(2_000_000)).toEqual(unknown(1));
    expect(unknown(1).most - say("").most).toBe(IMAGE_TOKENS_MAX);
    expect(unknown(1).least - say("").least).toBe(1);
  });

  test.each([
    ["PNG", png],
    ["JPEG", jpeg],
    ["GIF", gif],
  ])("counts the pixels of a %s.", (_type, make) => {
    const small = likelyOf(make(1, 1));
    expect(small).toBeLessThan(300);
    expect(likelyOf(make(1_000, 750)) - small).toBe(1_000);
    expect(likelyOf(make(30_000, 30_000))).toBe(IMAGE_TOKENS_MAX);
    expect(leastOf(make(1_000, 750), "low")).toBeLessThan(300);
  });

  test("is that of about a megapixel where its size is not known.", () => {
    for (const url of [
      "https://x/y.png",
      "data:,",
      dataOf("webp", Buffer.alloc(64)),
      dataOf("jpeg", Buffer.from([0xff, 0xd8])),
    ]) {
      expect(likelyOf(url)).toBeGreaterThan(1_500);
      expect(likelyOf(url)).toBeLessThan(2_000);
    }
    expect(leastOf("https://x/y.png", "low")).toBeLessThan(300);
  });

  test("is not lowered by its detail, which some providers ignore, but says what the detail can spare.", () => {
    const [low, high] = [shown(png(1_000, 750), "low"), shown(png(1_000, 750), "high")];
    expect([low.likely, low.likelyBesideText]).toEqual([high.likely, high.likelyBesideText]);
    expect([low.lowDetailSavings, high.lowDetailSavings]).toEqual([1_000, 0]);
  });

  test("of gpt-4o-mini counts tiles of 5,667 tokens.", () => {
    const imageTokensMax = 2_833 + 8 * 5_667;
    const likelyOfMini = (width: number, height: number) => {
      const content: ContentPart[] = [{ type: "image_url", image_url: { url: png(width, height) } }];
      const request = { model: "m", messages: [{ role: "user" as const, content }] };
      return estimatePrompt(request, { ...LIMITS, imageTokensMax }).likely - say("").likely;
    };
    for (const side of [600, 1_024, 3_000]) expect(Math.abs(likelyOfMini(side, side) - 25_501)).toBeLessThan(5);
    expect(Math.abs(likelyOfMini(512, 512) - 8_500)).toBeLessThan(5);
  });

  test("at low detail is OpenAI's 85 tokens.", () => {
    const content: ContentPart[] = [{ type: "image_url", image_url: { url: "https://x/y.png", detail: "low" } }];
    const request: ChatCompletionRequest = { model: "m", messages: [{ role: "user", content }] };
    const { likely, lowDetailSavings = 0 } = estimatePrompt(request, { ...LIMITS, imageTokensMax: 1_445 });
    expect(likely - lowDetailSavings - say("").likely).toBe(85);
  });
});
