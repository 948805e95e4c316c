import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import type { KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest, RequestMessage } from "../api/chat/request.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { ConversationRow } from "../stores/queries/conversations.ts";
import { ConversationLog, type ConversationLogOptions, toConversationRecord } from "./conversation-log.ts";

const UNAVAILABLE = new StoreUnavailableError("away");

/** Creates a conversation log over rows in memory. `state.insert` decides the outcome of each write. */
function setUp(options: Partial<ConversationLogOptions> = {}) {
  const log = keepLog();
  const written: ConversationRow[] = [];
  const batches: number[] = [];
  const state: { insert: (rows: readonly ConversationRow[]) => Promise<void> } = { insert: async () => {} };
  const rows = {
    insert: async (batch: readonly ConversationRow[]) => {
      await state.insert(batch);
      batches.push(batch.length);
      written.push(...batch);
    },
  };
  const conversationLog = new ConversationLog({
    rows,
    live: { config: { conversations: { limitBytes: 100_000 } } },
    clock: () => 7,
    log,
    gatherMs: 5,
    retryMs: 5,
    ...options,
  });
  const add = (holdId: string, content = "Hello", answer: () => null = () => null, organizationId = "org_1") =>
    conversationLog.add({
      organizationId,
      holdId,
      request: { model: "m", messages: [{ role: "user", content }] },
      answer,
    });
  const ids = () => written.map(({ holdId }) => holdId);
  const dropped = () => log.lines.flatMap(({ fields }) => fields.dropped ?? []);
  return { conversationLog, add, state, written, batches, ids, dropped, log };
}

test("a conversation is serialized in a later turn, and conversations that arrive together are written together", async () => {
  const { conversationLog, add, written, batches, ids } = setUp();
  const asked: string[] = [];
  for (const id of ["a", "b"])
    add(id, "Hello", () => {
      asked.push(id);
      return null;
    });
  expect(asked).toEqual([]);
  await nextTurn();
  expect(asked).toEqual(["a", "b"]);
  await expect.poll(ids).toEqual(["a", "b"]);
  expect(batches).toEqual([2]);
  const request = JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hello" }] });
  const row = { organizationId: "org_1", endedAtMs: 7, isTruncated: false, request, answer: null };
  expect(written[0]).toEqual({ ...row, holdId: "a" });
  await conversationLog.stop();
});

test("many conversations are written in chunks, limited by number and by size", async () => {
  const short = setUp();
  for (let index = 0; index < 120; index += 1) short.add(`${index}`);
  await expect.poll(() => short.ids().length).toBe(120);
  expect(short.batches).toEqual([50, 50, 20]);
  const long = setUp();
  for (let index = 0; index < 10; index += 1) long.add(`${index}`, "x".repeat(90_000));
  await expect.poll(() => long.ids().length).toBe(10);
  expect(Math.max(...long.batches)).toBe(5);
  await Promise.all([short.conversationLog.stop(), long.conversationLog.stop()]);
});

test("conversations wait while the store is unavailable; those that do not fit are dropped and logged once", async () => {
  const { conversationLog, add, state, ids, dropped } = setUp({ queueBytesMax: 10_000 });
  state.insert = () => Promise.reject(UNAVAILABLE);
  for (let index = 0; index < 20; index += 1) add(`${index}`, "x".repeat(900));
  await nextTurn();
  expect(dropped()).toEqual([15]);
  add("late", "x".repeat(900));
  await nextTurn();
  expect(dropped()).toEqual([15]);
  state.insert = async () => {};
  await expect.poll(ids).toEqual(["0", "1", "2", "3", "4"]);
  add("again");
  await expect.poll(() => ids().at(-1)).toBe("again");
  await conversationLog.stop();
  expect(dropped()).toEqual([15, 1]);
});

test("an organization takes half of the queue at most, and the organizations are written in turn", async () => {
  const { conversationLog, add, state, ids, batches } = setUp({ queueBytesMax: 200_000 });
  state.insert = () => Promise.reject(UNAVAILABLE);
  for (let index = 0; index < 1_000; index += 1) add(`many-${index}`, "x".repeat(900));
  await nextTurn();
  for (const id of ["few-0", "few-1"]) add(id, "x".repeat(900), undefined, "org_2");
  await nextTurn();
  state.insert = async () => {};
  await expect.poll(() => ids().length).toBe(106);
  expect(ids().slice(0, 50)).toEqual(expect.arrayContaining(["few-0", "few-1"]));
  expect(batches[0]).toBe(50);
  await conversationLog.stop();
});

test("a conversation that cannot be written does not prevent others, and its content is not logged", async () => {
  const { conversationLog, add, state, ids, dropped, log } = setUp();
  state.insert = async (rows) => {
    if (rows.some(({ holdId }) => holdId === "bad")) throw Object.assign(new Error("no"), { detail: "canary" });
  };
  for (const id of ["a", "bad", "b"]) add(id, "canary");
  await expect.poll(ids).toEqual(["a", "b"]);
  await conversationLog.stop();
  expect(dropped()).toEqual([1]);
  expect(log.messages("error")).toEqual(["a conversation cannot be stored: it is dropped"]);
  expect(JSON.stringify(log.lines)).not.toContain("canary");
});

test("a conversation that cannot be serialized is dropped without affecting others", async () => {
  const { conversationLog, add, ids, dropped } = setUp();
  const deep = () => {
    throw new RangeError("Maximum call stack size exceeded");
  };
  add("deep", "Hello", deep);
  add("fine");
  await expect.poll(ids).toEqual(["fine"]);
  await conversationLog.stop();
  expect(dropped()).toEqual([1]);
});

test("a stop writes all queued conversations", async () => {
  const { conversationLog, add, ids } = setUp({ gatherMs: 60_000 });
  add("a");
  await nextTurn();
  add("b");
  await conversationLog.stop();
  expect(ids()).toEqual(["a", "b"]);
});

test("a stop does not wait for an unavailable store, and logs how many conversations were dropped", async () => {
  const { conversationLog, add, state, ids, dropped } = setUp({ retryMs: 60_000 });
  state.insert = () => Promise.reject(UNAVAILABLE);
  for (let index = 0; index < 60; index += 1) add(`${index}`);
  await conversationLog.stop();
  expect(ids()).toEqual([]);
  expect(dropped()).toEqual([60]);
});

const LIMIT = 2_048;
const user = (content: RequestMessage["content"]) => ({ role: "user", content }) as RequestMessage;
const answering = (message: Partial<KeptAnswer["message"]>): KeptAnswer => {
  return { message: { role: "assistant", content: null, refusal: null, ...message }, finish_reason: "stop" };
};
const kept = (request: ChatCompletionRequest, answer: KeptAnswer | null = null, limitBytes = LIMIT) => {
  const record = toConversationRecord(request, answer, limitBytes);
  const length = Buffer.byteLength(record.request) + Buffer.byteLength(record.answer ?? "");
  expect(record.byteLength).toBe(length);
  expect(length).toBeLessThanOrEqual(limitBytes);
  return {
    ...record,
    request: JSON.parse(record.request) as ChatCompletionRequest,
    answer: JSON.parse(record.answer ?? "null") as KeptAnswer | null,
  };
};

test("a conversation within the limit is stored completely", () => {
  const tools = [{ type: "function" as const, function: { name: "weather", parameters: { type: "object" } } }];
  const request = { model: "m", messages: [user("Hé\0\ud800 🦊")], temperature: 0, instructions: "Be brief.", tools };
  const answer = answering({ tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] });
  expect(kept(request, answer)).toMatchObject({ request, answer, isTruncated: false });
});

test("a long conversation is stored with its latest messages and the beginning of the one before them", () => {
  const messages = Array.from({ length: 60 }, (_, index) => user(`${index} ${"x".repeat(100)}`));
  const { request, isTruncated } = kept({ model: "m", temperature: 0.5, messages });
  expect(isTruncated).toBe(true);
  expect(request).toMatchObject({ model: "m", temperature: 0.5 });
  expect(request.messages.at(-1)).toEqual(messages.at(-1));
  expect(request.messages.length).toBeGreaterThan(10);
  const [first] = request.messages;
  const whole = messages[60 - request.messages.length];
  expect(`${whole?.content}`.startsWith(`${first?.content}`)).toBe(true);
});

test("a long text is truncated without splitting characters", () => {
  for (const text of ["a".repeat(9_000), "🦊".repeat(9_000), "\n".repeat(9_000), "\0".repeat(9_000)]) {
    const { request, answer } = kept({ model: "m", messages: [user(text)] }, answering({ content: text }));
    for (const content of [`${request.messages[0]?.content}`, `${answer?.message.content}`]) {
      expect(text.startsWith(content) && content.isWellFormed()).toBe(true);
      expect(Buffer.byteLength(JSON.stringify(content))).toBeGreaterThan(LIMIT / 4);
    }
    expect(answer?.finish_reason).toBe("stop");
  }
});

test.each([
  ["without texts is a little too long", [{ type: "image_url", image_url: { url: `https://x/${"a".repeat(LIMIT)}` } }]],
  ["has many short texts", Array.from({ length: LIMIT / 40 }, () => ({ type: "text" as const, text: "some words" }))],
] as const)("few passes truncate a message that %s", (_, content) => {
  const stringify = vi.spyOn(JSON, "stringify");
  kept({ model: "m", messages: [{ role: "user", content: [...content] }] });
  const passes = stringify.mock.calls.length;
  stringify.mockRestore();
  expect(passes).toBeLessThan(40);
});

test("long fields are omitted, and instructions are truncated", () => {
  const tool = { type: "function" as const, function: { name: "weather", description: "d".repeat(3_000) } };
  const long = { model: "m", seed: 7, tools: [tool], instructions: "i".repeat(3_000), messages: [user("Hello")] };
  const { request } = kept(long);
  expect(request).toMatchObject({ model: "m", seed: 7, messages: long.messages });
  expect(request.tools).toBeUndefined();
  expect(request.instructions).toMatch(/^i{500,}$/);
});

test("a message with many tool calls is stored without them", () => {
  const calls = Array.from({ length: 300 }, (_, index) => {
    return { id: `call_${index}`, type: "function" as const, function: { name: "f", arguments: "{}" } };
  });
  const { request, answer } = kept({ model: "m", messages: [user("Hello")] }, answering({ tool_calls: calls }));
  expect(answer?.message).toEqual({ role: "assistant", content: "" });
  expect(request.messages).toEqual([user("Hello")]);
});

test("an image sent as a data URL is omitted, and one sent by its address is stored", () => {
  const image = (url: string) => ({ type: "image_url" as const, image_url: { url } });
  const bytes = `data:image/png;base64,${"A".repeat(100_000)}`;
  const address = "https://example.com/a.png";
  const asked = [user([{ type: "text", text: "What is it?" }, image(bytes), image(address), image("DATA:x")])];
  const { request, isTruncated } = kept({ model: "m", messages: asked });
  const placeholder = `data:image/png;base64,[${bytes.length} characters, not kept]`;
  const parts = [image(placeholder), image(address), image("data:[6 characters, not kept]")];
  expect(request.messages[0]?.content).toEqual([{ type: "text", text: "What is it?" }, ...parts]);
  expect(isTruncated).toBe(false);
  expect(asked[0]?.content).toContainEqual(image(bytes));
});

test("the data of files, recordings and videos is omitted, and addresses are stored", () => {
  const data = "A".repeat(1_000);
  const parts = (fileData: string, recording: string, film: string) => [
    { type: "file" as const, file: { filename: "a.pdf", file_data: fileData } },
    { type: "file" as const, file: { file_url: "https://example.com/a.pdf" } },
    { type: "input_audio" as const, input_audio: { data: recording, format: "mp3" } },
    { type: "video_url" as const, video_url: { url: film } },
    { type: "video_url" as const, video_url: { url: "https://example.com/a.mp4" } },
  ];
  const messages = [user(parts(`data:application/pdf;base64,${data}`, data, `data:video/mp4;base64,${data}`))];
  const { request } = kept({ model: "m", messages });
  const expected = parts(
    "data:application/pdf;base64,[1028 characters, not kept]",
    "[1000 characters, not kept]",
    "data:video/mp4;base64,[1022 characters, not kept]",
  );
  expect(request.messages[0]?.content).toEqual(expected);
});

test("every stored conversation is JSON within the size limit", () => {
  const text = fc.string({ unit: "binary", maxLength: 3_000 });
  const message = fc.record(
    { role: fc.constant("user" as const), content: text, name: text },
    { requiredKeys: ["role"] },
  );
  const request = fc.record(
    {
      model: fc.string({ maxLength: 200 }),
      messages: fc.array(message, { minLength: 1 }),
      instructions: text,
      user: text,
    },
    { requiredKeys: ["model", "messages"] },
  );
  fc.assert(
    fc.property(request, fc.option(text), fc.integer({ min: 1_024, max: 20_000 }), (asked, content, limit) => {
      kept(asked, content === null ? null : answering({ content }), limit);
    }),
    { numRuns: 200 },
  );
});
