/** LlamaIndex with its OpenAI package: chat and embeddings. */
import assert from "node:assert/strict";
import { OpenAI, OpenAIEmbedding } from "@llamaindex/openai";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL: model, EMBEDDING_MODEL, LAST_TEXT, SCENARIO } = process.env;
const llm = new OpenAI({ model, apiKey, baseURL, maxRetries: 0 });
const messages = [{ role: "user", content: "Is all of it done?" }];

if (SCENARIO !== "task") {
  const stream = await new OpenAI({ model, apiKey, baseURL }).chat({ messages, stream: true });
  for await (const { delta } of stream) process.stdout.write(delta);
  process.exit(0);
}

const pieces = [];
for await (const { delta } of await llm.chat({ messages, stream: true })) pieces.push(delta);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
const none = new OpenAI({ model: "none", apiKey, baseURL, maxRetries: 0 });
await assert.rejects(none.chat({ messages }), { status: 404, code: "model_not_found" });

const embeddings = new OpenAIEmbedding({ model: EMBEDDING_MODEL, apiKey, baseURL, maxRetries: 0 });
const vector = await embeddings.getTextEmbedding("Is all of it done?");
assert.deepEqual(
  vector.map((value) => Math.round(value * 10)),
  [6, 8],
);
