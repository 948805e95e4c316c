/** LangChain's packages for OpenAI, Anthropic and Google: a tool, its result in a stream, an image, and an unknown model. */
import assert from "node:assert/strict";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";

const { ORIGIN, TOKEN: apiKey, MODEL, LAST_TEXT, IMAGE, SCENARIO, PACKAGE } = process.env;
const library = await import(PACKAGE);
const { ChatOpenAI, ChatAnthropic, ChatGoogleGenerativeAI } = library;
const modelWith = (model, more = {}) => {
  const fields = { model, apiKey, ...more };
  if (ChatOpenAI) return new ChatOpenAI({ ...fields, configuration: { baseURL: `${ORIGIN}/v1` } });
  if (ChatAnthropic) return new ChatAnthropic({ ...fields, anthropicApiUrl: ORIGIN });
  return new ChatGoogleGenerativeAI({ ...fields, baseUrl: ORIGIN });
};
const question = "Is all of it done?";

if (SCENARIO !== "task") {
  for await (const { text } of await modelWith(MODEL).stream(question)) process.stdout.write(text);
  process.exit(0);
}

const schema = { type: "object", properties: { what: { type: "string" } } };
const model = modelWith(MODEL, { maxRetries: 0 });
const withTool = model.bindTools([{ name: "look", description: "Looks at the door.", schema }]);
const called = await withTool.invoke(question);
assert.deepEqual(
  called.tool_calls.map(({ name, args }) => [name, args]),
  [["look", { what: "the door" }]],
);
const { id: tool_call_id, name } = called.tool_calls[0];
const result = new ToolMessage({ tool_call_id, name, content: "The door is green." });
const pieces = [];
for await (const { text } of await withTool.stream([new HumanMessage(question), called, result])) {
  if (text !== "") pieces.push(text);
}
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
const image = new HumanMessage({ content: [{ type: "image_url", image_url: { url: IMAGE } }] });
// The package for Google sends images only to models of these names.
const seeing = modelWith(ChatGoogleGenerativeAI ? "gemini-3-flash" : MODEL, { maxRetries: 0 });
assert.equal((await seeing.invoke([image])).text, LAST_TEXT);
await assert.rejects(modelWith("none", { maxRetries: 0 }).invoke(question), { status: 404 });
