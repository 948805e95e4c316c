/** Anthropic's library: a tool and its result in a stream, the list of models, an image, and an unknown model. */
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const { ORIGIN: baseURL, TOKEN: authToken, MODEL: model, LAST_TEXT, IMAGE, SCENARIO } = process.env;
const client = new Anthropic({ baseURL, authToken, apiKey: null, maxRetries: 0 });
const asked = { model, max_tokens: 100, messages: [{ role: "user", content: "Is all of it done?" }] };

if (SCENARIO !== "task") {
  const stream = new Anthropic({ baseURL, authToken, apiKey: null }).messages.stream(asked);
  stream.on("text", (text) => process.stdout.write(text));
  await stream.finalMessage();
  process.exit(0);
}

const input_schema = { type: "object", properties: { what: { type: "string" } } };
const tools = [{ name: "look", description: "Looks at the door.", input_schema }];
const called = await client.messages.create({ ...asked, tools });
const [call] = called.content;
assert.deepEqual([call.name, call.input, called.stop_reason], ["look", { what: "the door" }, "tool_use"]);
const result = { type: "tool_result", tool_use_id: call.id, content: "The door is green." };
const further = [
  { role: "assistant", content: called.content },
  { role: "user", content: [result] },
];
const pieces = [];
const stream = client.messages.stream({ ...asked, tools, messages: [...asked.messages, ...further] });
stream.on("text", (text) => pieces.push(text));
assert.equal((await stream.finalMessage()).content[0].text, LAST_TEXT);
assert.ok(pieces.length > 3);

const models = [];
for await (const { id } of client.models.list()) models.push(id);
assert.ok(models.includes(model));
const source = { type: "base64", media_type: "image/png", data: IMAGE.slice(IMAGE.indexOf(",") + 1) };
const content = [{ type: "image", source }];
const seen = await client.messages.create({ ...asked, messages: [{ role: "user", content }] });
assert.equal(seen.content[0].text, LAST_TEXT);
await assert.rejects(client.messages.create({ ...asked, model: "none" }), { status: 404 });
