/** OpenAI's library, which `npm run agents` installs in the version that it tries. */
import assert from "node:assert/strict";
import OpenAI from "openai";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL: model, EMBEDDING_MODEL, LAST_TEXT, IMAGE, SCENARIO } = process.env;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const notFound = { status: 404, code: "model_not_found" };

const messages = [{ role: "user", content: "Is all of it done?" }];

if (SCENARIO !== "task") {
  const stream = await new OpenAI({ baseURL, apiKey }).chat.completions.create({ model, messages, stream: true });
  for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
  process.exit(0);
}

const chunks = [];
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
  chunks.push(chunk.choices[0]?.delta.content ?? "");
}
assert.equal(chunks.join(""), LAST_TEXT);
assert.ok(chunks.length > 3);
await assert.rejects(client.chat.completions.create({ model: "none", messages, stream: true }), notFound);

const input = "Is all of it done?";
const deltas = [];
for await (const event of await client.responses.create({ model, input, stream: true })) {
  if (event.type === "response.output_text.delta") deltas.push(event.delta);
}
assert.equal(deltas.join(""), LAST_TEXT);
assert.ok(deltas.length > 3);
assert.equal((await client.responses.create({ model, input })).output_text, LAST_TEXT);
await assert.rejects(client.responses.create({ model: "none", input, stream: true }), notFound);

const models = [];
for await (const { id } of client.models.list()) models.push(id);
assert.ok(models.includes(model));
const content = [{ type: "image_url", image_url: { url: IMAGE } }];
const seen = await client.chat.completions.create({ model, messages: [{ role: "user", content }] });
assert.equal(seen.choices[0]?.message.content, LAST_TEXT);

// The library asks for base64 and decodes it.
const { data } = await client.embeddings.create({ model: EMBEDDING_MODEL, input });
assert.deepEqual(
  data[0]?.embedding.map((value) => Math.round(value * 10)),
  [6, 8],
);
await assert.rejects(client.embeddings.create({ model: "none", input }), notFound);
