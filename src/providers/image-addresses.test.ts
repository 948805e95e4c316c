import { afterEach, describe, expect, test } from "vitest";
import {
  event,
  hear,
  requestOf,
  STREAM_HEAD,
  settingsOf,
  startWire,
  type Wire,
  whole,
} from "../../test/support/wire.ts";
import type { RequestMessage } from "../api/chat/request.ts";
import { createProvider } from "./index.ts";
import { UpstreamError } from "./provider.ts";
import { isPrivateUpstream } from "./settings.ts";

const imageAt = (url: string): RequestMessage[] => [
  { role: "user", content: "look" },
  {
    role: "user",
    content: [
      { type: "text", text: "at this" },
      { type: "image_url", image_url: { url } },
    ],
  },
];
const GENERIC =
  "The provider refused a request with an image address, and its reason is not shown. Send the image as data:image/…;base64,… to see the reason.";
const ADDRESS = imageAt("https://example.com/a.png");
const DATA = imageAt("data:image/png;base64,AAAA");

describe("An upstream", () => {
  test.each([
    "http://127.0.0.1:11434/v1",
    "http://localhost:8000/v1",
    "http://[::1]:8000/v1",
    "http://10.1.2.3/v1",
    "http://[fd12::1]/v1",
    "http://vllm:8000/v1",
    "https://models.internal/v1",
    "http://2130706433/v1",
  ])("at %s is in a private network.", (baseUrl) => {
    expect(isPrivateUpstream(baseUrl)).toBe(true);
  });

  test.each([null, "https://api.example.com/v1", "https://8.8.8.8/v1"])(
    "at %s is not in a private network.",
    (baseUrl) => {
      expect(isPrivateUpstream(baseUrl)).toBe(false);
    },
  );

  test.each(["openai-compatible", "mistral", "azure"])(
    "of the kind %s is in a private network if its base URL is.",
    async (kind) => {
      const providerAt = (baseUrl: string) => createProvider(settingsOf(baseUrl, { kind, apiKey: "key" }), {});
      for (const [baseUrl, isPrivate] of [
        ["http://127.0.0.1:9/v1", true],
        ["https://api.example.com/v1", false],
      ] as const) {
        const provider = providerAt(baseUrl);
        expect(provider.isPrivate).toBe(isPrivate);
        await provider.close();
      }
    },
  );
});

describe("The upstream's reason for refusing an image address is hidden:", () => {
  let wire: Wire | undefined;
  afterEach(async () => {
    await wire?.end();
    wire = undefined;
  });

  const message =
    "Failed to fetch image: Cannot connect to host example.com:443 [Connect call failed ('10.0.0.7', 443)]";
  const complaint = { error: { message, type: "invalid_request_error", code: "invalid_image_url" } };
  const answers: [string, string][] = [
    ["a status", whole(400, complaint)],
    ["an error in place of an answer", whole(200, complaint)],
    ["an error in a stream", STREAM_HEAD + event(complaint)],
    ["a text that is no JSON", whole(422, "could not open file:///etc/passwd")],
  ];

  test.each(answers.flatMap(([name, bytes]) => ["openai-compatible", "azure"].map((kind) => ({ name, kind, bytes }))))(
    "$name, from $kind.",
    async ({ name, kind, bytes }) => {
      wire = await startWire((socket) => void socket.end(bytes));
      const provider = createProvider(settingsOf(wire.baseUrl, { kind, apiKey: "key" }), {});
      const stream = name.includes("stream");
      const { error } = await hear(provider, { stream, messages: ADDRESS });
      expect(error).toBeInstanceOf(UpstreamError);
      // An error with status 200 is no answer to the package, which then tells no reason at all.
      const { publicReason = GENERIC } = error as UpstreamError;
      expect(publicReason).toBe(GENERIC);
      expect(JSON.stringify(error)).not.toMatch(/connect|10\.0|passwd|fetch/i);
      if (name === "a status") {
        const { error: other } = await hear(provider, { stream, messages: DATA });
        expect(other).toMatchObject({ publicReason: expect.stringContaining("Failed to fetch image") });
      }
      await provider.close();
    },
  );
});

test("An image address in a tool's result is refused, because packages would fetch it.", async () => {
  const settings = settingsOf("https://api.example.com/v1", { kind: "anthropic", apiKey: "key" });
  const provider = createProvider(settings, {});
  const call = { id: "call_1", type: "function" as const, function: { name: "look", arguments: "{}" } };
  const resultWith = (url: string): RequestMessage[] => [
    { role: "user", content: "look" },
    { role: "assistant", tool_calls: [call] },
    { role: "tool", tool_call_id: "call_1", content: [{ type: "image_url", image_url: { url } }] },
  ];
  const tools = [{ type: "function" as const, function: { name: "look" } }];
  const convert = (url: string) => provider.convert?.(requestOf({ messages: resultWith(url), tools }));
  expect(() => convert("https://example.com/a.png")).toThrow(
    expect.objectContaining({ failure: "unsupported", param: "messages[2].content[0]" }),
  );
  expect(convert("data:image/png;base64,AAAA")).toMatchObject({
    prompt: [{ role: "user" }, { role: "assistant" }, { role: "tool" }],
  });
  await provider.close();
});
