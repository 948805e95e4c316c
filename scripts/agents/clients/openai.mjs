/** OpenAI's library, which `npm run agents` installs in the version that it tries. */
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

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

const completion = { model, prompt: "Is all of it", max_tokens: 50 };
assert.equal((await client.completions.create(completion)).choices[0]?.text, LAST_TEXT);
const continued = [];
for await (const chunk of await client.completions.create({ ...completion, stream: true })) {
  continued.push(chunk.choices[0]?.text ?? "");
}
assert.equal(continued.join(""), LAST_TEXT);

const media = JSON.parse(process.env.MEDIA_MODELS);
const image = await client.images.generate({ model: media.images, prompt: "A green door" });
assert.equal(Buffer.from(image.data[0].b64_json, "base64").toString(), LAST_TEXT);
const speech = await client.audio.speech.create({ model: media.speech, voice: "alloy", input });
assert.equal(Buffer.from(await speech.arrayBuffer()).toString(), LAST_TEXT);
// As long as the seconds that the upstream reports: a charge is never above what was held for the bytes.
const file = await toFile(Buffer.alloc(4_000), "door.wav");
const transcript = await client.audio.transcriptions.create({ model: media.transcription, file });
assert.equal(transcript.text, LAST_TEXT);
