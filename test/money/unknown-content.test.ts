import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, settledUsage, startService } from "../support/service.ts";
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit per output token and a thousandth per input token, so that a charge shows the counted tokens. */
const PRICE = { input: 1_000, output: 1_000_000 };
const MAX_TOKENS = 100_000;
/** 36 KB, of which a part is kept for the count. */
const TEXT = "The quick brown fox jumps over the lazy dog. ".repeat(800);
const TEXT_TOKENS = countTokens(TEXT);

type Delta = Record<string, unknown>;
const PARTS: Record<string, Delta> = {
  "a part of an unknown type": { content: [{ type: "thinking", thinking: TEXT }] },
  "nested parts": { content: [{ type: "thinking", thinking: [{ type: "text", text: TEXT }] }] },
  "an unknown field of a delta": { musings: TEXT },
  annotations: { annotations: [{ type: "url_citation", url_citation: { url: "u", title: TEXT } }] },
  "unknown fields of a tool call": {
    tool_calls: [{ index: 0, id: "c", function: { name: "f" }, extra_content: TEXT }],
  },
};
const BLOCKS: Record<string, Delta> = {
  "a block of an unknown type": { type: "invented", text: TEXT },
  "an unknown field of a block of text": { type: "text", text: "", notes: [TEXT] },
};

const start = ({ response }: Parameters<Behaviour>[0]) =>
  response.writeHead(200, { "content-type": "text/event-stream" });
const chatEvent = (fields: object) => `data: ${JSON.stringify(fields)}\n\n`;
const choice = (delta: Delta, finish_reason: string | null = null) =>
  chatEvent({ choices: [{ index: 0, delta, finish_reason }] });

/** Sends a delta, then ends or breaks off. */
const sending =
  (delta: Delta, isWhole: boolean): Behaviour =>
  (request) => {
    const response = start(request);
    response.write(choice(delta));
    if (isWhole) response.end(`${choice({}, "stop")}data: [DONE]\n\n`);
    else setTimeout(() => response.destroy(), 50);
  };

const messageEvent = (data: { type: string }) => `event: ${data.type}\n${chatEvent(data)}`;
const PLACEHOLDER = { input_tokens: 20, output_tokens: 1 };
/** Sends a block on the Messages wire, with a placeholder of the usage at the beginning and `usage` at the end. */
const sendingBlock =
  (block: Delta, usage: object, isWhole: boolean): Behaviour =>
  (request) => {
    const response = start(request);
    const events: { type: string; [field: string]: unknown }[] = [
      { type: "message_start", message: { id: "msg_1", type: "message", role: "assistant", usage: PLACEHOLDER } },
      { type: "content_block_start", index: 0, content_block: block },
      { type: "content_block_stop", index: 0 },
    ];
    response.write(events.map(messageEvent).join(""));
    if (!isWhole) {
      setTimeout(() => response.destroy(), 50);
      return;
    }
    response.write(
      messageEvent({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage } as { type: string }),
    );
    response.end(messageEvent({ type: "message_stop" }));
  };

const ENDS = ["broken", "whole"];
const PLACEHOLDER_CASE = "text after a placeholder";
/** Usage at the end of an answer that says nothing of its output. */
const NO_COUNTS = [{ output_tokens: "many" }, {}, { input_tokens: 20 }, { output_tokens: null }];
const modelOf = (name: string, end: string) => `${name} ${end}`.replaceAll(" ", "-");

let upstream: Upstream;
let service: RunningService;

beforeAll(async () => {
  upstream = await startUpstream();
  const cases = [...Object.keys(PARTS), ...Object.keys(BLOCKS), PLACEHOLDER_CASE];
  service = await startService({
    config: {
      completions: { maxTokens: MAX_TOKENS },
      providers: [
        { ...upstream.provider, id: "chat" },
        { ...upstream.provider, id: "messages", kind: "anthropic" },
      ],
      models: cases.flatMap((name) =>
        ENDS.map((end) => ({
          ...{ id: modelOf(name, end), price: PRICE, maxOutputTokens: MAX_TOKENS, contextWindow: 1_000_000 },
          routes: [{ provider: name in PARTS ? "chat" : "messages", model: modelOf(name, end) }],
        })),
      ),
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

/** Sends a request and returns the tokens of output that it was charged, at a credit each. */
async function outputCharged(path: string, model: string): Promise<number> {
  const organization = await makeOrganization(service, "1000000");
  const body = { model, messages: [{ role: "user", content: "go" }], max_tokens: MAX_TOKENS, stream: true };
  const answer = await send(service, path, organization.token, body);
  expect(await answer.text()).toContain(TEXT);
  return Math.floor((await settledUsage(service, organization.token)).creditsUsed);
}

/** The count of the whole is scaled from that of its beginning, and has the names of fields in addition. */
function expectTextCounted(tokens: number): void {
  expect(tokens).toBeGreaterThan(TEXT_TOKENS * 0.95);
  expect(tokens).toBeLessThan(TEXT_TOKENS * 1.05 + 20);
}

describe.each(ENDS)("A stream without usage that is %s is charged for", (end) => {
  test.each(Object.entries(PARTS))("%s.", async (name, delta) => {
    upstream.behave(modelOf(name, end), sending(delta, end === "whole"));
    expectTextCounted(await outputCharged("/v1/chat/completions", modelOf(name, end)));
  });

  test.each(Object.entries(BLOCKS))("%s on Messages.", async (name, block) => {
    const unusable = { output_tokens: -4 };
    upstream.behave(modelOf(name, end), sendingBlock(block, unusable, end === "whole"));
    expectTextCounted(await outputCharged("/v1/messages", modelOf(name, end)));
  });

  test.each(NO_COUNTS)(`${PLACEHOLDER_CASE} on Messages, and %j at the end.`, async (usage) => {
    const model = modelOf(PLACEHOLDER_CASE, end);
    upstream.behave(model, sendingBlock({ type: "text", text: TEXT }, usage, end === "whole"));
    expectTextCounted(await outputCharged("/v1/messages", model));
  });
});
