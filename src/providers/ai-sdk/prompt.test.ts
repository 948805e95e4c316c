import { describe, expect, test } from "vitest";
import type { RequestMessage } from "../../api/chat/request.ts";
import { AiSdkPrompt } from "./prompt.ts";
import { anthropic } from "./wires/anthropic.ts";
import { bedrock } from "./wires/bedrock.ts";
import { cohere } from "./wires/cohere.ts";
import { google } from "./wires/google.ts";
import { googleVertex } from "./wires/google-vertex.ts";
import { mistral } from "./wires/mistral.ts";
import { xai } from "./wires/xai.ts";

const toPrompt = (wire: ConstructorParameters<typeof AiSdkPrompt>[0], messages: RequestMessage[]) =>
  new AiSdkPrompt(wire, { messages, model: "model" });

const QUESTION: RequestMessage = { role: "user", content: "hello" };
const IMAGE = { type: "image_url" as const, image_url: { url: "data:image/png;base64,AAAA" } };
const call = (id: string, given: string, extra?: unknown): RequestMessage => ({
  role: "assistant",
  content: "one moment",
  tool_calls: [
    {
      id,
      type: "function",
      function: { name: "f", arguments: given },
      ...(extra !== undefined && { extra_content: extra }),
    },
  ],
});
const result = (id: string, content: RequestMessage["content"]): RequestMessage => ({
  role: "tool",
  tool_call_id: id,
  ...(content !== undefined && { content }),
});

test("System messages are moved to the front only if the wire requires it.", () => {
  const messages: RequestMessage[] = [
    QUESTION,
    { role: "developer", content: "be kind" },
    { role: "system", content: "and short" },
  ];
  expect(toPrompt(anthropic, messages).prompt.map(({ role }) => role)).toEqual(["system", "system", "user"]);
  expect(toPrompt(xai, messages).prompt.map(({ role }) => role)).toEqual(["user", "system", "system"]);
});

test("An empty system message is left out, because some wires refuse empty text.", () => {
  const messages: RequestMessage[] = [{ role: "system", content: "" }, QUESTION, { role: "developer", content: [] }];
  for (const wire of [anthropic, mistral]) {
    expect(toPrompt(wire, messages).prompt.map(({ role }) => role)).toEqual(["user"]);
  }
});

test("An empty reply is left out.", () => {
  const messages: RequestMessage[] = [QUESTION, { role: "assistant", content: "" }, QUESTION];
  expect(toPrompt(anthropic, messages).prompt.map(({ role }) => role)).toEqual(["user", "user"]);
});

test("Consecutive tool results are sent in one message, each with the name of its tool.", () => {
  const { prompt } = toPrompt(anthropic, [
    QUESTION,
    call("a", "{}"),
    result("a", "1"),
    result("a", [{ type: "text", text: "2" }]),
  ]);
  const last = prompt.at(-1);
  expect(last?.role === "tool" && last.content).toEqual([
    { type: "tool-result", toolCallId: "a", toolName: "f", output: { type: "text", value: "1" } },
    { type: "tool-result", toolCallId: "a", toolName: "f", output: { type: "text", value: "2" } },
  ]);
});

test("An image in a tool's result is passed on there if the wire supports it, otherwise in the next message.", () => {
  const messages = [QUESTION, call("a", ""), result("a", [{ type: "text", text: "look" }, IMAGE])];
  const last = toPrompt(anthropic, messages).prompt.at(-1);
  expect(last?.role === "tool" && last.content[0]).toMatchObject({
    output: { type: "content", value: [{ text: "look" }, { type: "file" }] },
  });
  const [, , sent, ...others] = toPrompt(mistral, [...messages, QUESTION]).prompt;
  expect(sent?.role === "tool" && sent.content[0]).toMatchObject({ output: { type: "text", value: "look" } });
  expect(others).toMatchObject([{ role: "user", content: [{ type: "file" }] }, { role: "user" }]);
});

describe("A hint that a wire does not support", () => {
  test.each([
    ["messages.name", anthropic, [{ ...QUESTION, name: "ann" }]],
    ["messages.content", cohere, [QUESTION, call("a", "{}"), result("a", "1")]],
    [
      "image_url.detail",
      mistral,
      [{ role: "user", content: [{ ...IMAGE, image_url: { ...IMAGE.image_url, detail: "low" } }] }],
    ],
  ] as const)("%s", (name, wire, messages) => {
    expect([...toPrompt(wire, messages as unknown as RequestMessage[]).ignored]).toEqual([name]);
  });

  test("is not named if the wire supports it.", () => {
    const detailed = { ...IMAGE, image_url: { ...IMAGE.image_url, detail: "low" as const } };
    const { prompt, ignored } = toPrompt(xai, [
      { role: "user", content: [detailed] },
      call("a", "{}"),
      result("a", "1"),
    ]);
    expect([...ignored]).toEqual([]);
    expect(prompt[0]).toMatchObject({ content: [{ providerOptions: { xai: { imageDetail: "low" } } }] });
  });
});

describe("A message that cannot be expressed is refused with its place:", () => {
  test.each([
    ["messages[1].tool_call_id", [QUESTION, result("b", "1")]],
    [
      "messages[0].content[0].image_url.url",
      [{ role: "user", content: [{ type: "image_url", image_url: { url: "ftp://x/y.png" } }] }],
    ],
    [
      "messages[0].content[0].image_url.url",
      [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:text/html,x" } }] }],
    ],
    ["messages[0]", [{ role: "system", content: [IMAGE] }]],
  ] as const)("%s", (at, messages) => {
    const refused = expect.objectContaining({
      failure: "unsupported",
      publicReason: expect.stringContaining(`'${at}'`),
    });
    expect(() => toPrompt(anthropic, messages as unknown as RequestMessage[])).toThrow(refused);
  });
});

test("Only the signed blocks of extra_content that the wire can read are sent back.", () => {
  const block = { type: "reasoning.text", format: "anthropic-claude-v1" };
  const extra = {
    reasoning_details: [
      { ...block, text: "hm", signature: "s", cacheControl: { type: "ephemeral" } },
      { ...block, text: "unsigned" },
      { ...block, text: "hm", signature: 7 },
      { type: "reasoning.encrypted", format: block.format, data: {} },
      { ...block, format: "of-another", text: "hm", signature: "t" },
      "text",
      null,
    ],
    caller: {},
    google: { thought_signature: 7 },
  };
  const { prompt } = toPrompt(anthropic, [QUESTION, call("a", "{}", extra)]);
  expect(prompt.at(-1)?.content).toEqual([
    { type: "reasoning", text: "hm", providerOptions: { anthropic: { signature: "s" } } },
    { type: "text", text: "one moment" },
    { type: "tool-call", toolCallId: "a", toolName: "f", input: {} },
  ]);
});

test("An assistant's refusal without content is sent back as text on every wire.", () => {
  for (const wire of [anthropic, bedrock, cohere, google, googleVertex, mistral, xai]) {
    expect(toPrompt(wire, [QUESTION, { role: "assistant", refusal: "I cannot." }]).prompt.at(-1)).toEqual({
      role: "assistant",
      content: [{ type: "text", text: "I cannot." }],
    });
  }
});

test("Instructions are the first system message, and do not count as one where an error names a message.", () => {
  const messages: RequestMessage[] = [{ role: "system", content: "Be kind." }, QUESTION];
  for (const wire of [anthropic, xai]) {
    const { prompt } = new AiSdkPrompt(wire, { instructions: "Be brief.", messages, model: "model" });
    expect(prompt).toEqual(toPrompt(wire, [{ role: "system", content: "Be brief." }, ...messages]).prompt);
  }
  const wrong = { instructions: "Be brief.", messages: [result("unknown", "x")], model: "model" };
  expect(() => new AiSdkPrompt(anthropic, wrong)).toThrow(
    expect.objectContaining({ param: "messages[0].tool_call_id" }),
  );
});
