/** The AI SDK with its default for OpenAI, the Responses API. */
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, embed, generateText, streamText } from "ai";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL, EMBEDDING_MODEL, LAST_TEXT, IMAGE, SCENARIO } = process.env;
const openai = createOpenAI({ baseURL, apiKey });
const prompt = "Is all of it done?";

if (SCENARIO !== "task") {
  const onError = ({ error }) => console.error(error);
  for await (const piece of streamText({ model: openai(MODEL), prompt, onError }).textStream)
    process.stdout.write(piece);
  process.exit(0);
}

const pieces = [];
for await (const piece of streamText({ model: openai(MODEL), prompt, maxRetries: 0 }).textStream) pieces.push(piece);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
await assert.rejects(generateText({ model: openai("none"), prompt, maxRetries: 0 }), (error) => {
  assert.ok(APICallError.isInstance(error));
  assert.equal(error.statusCode, 404);
  assert.equal(JSON.parse(error.responseBody).error.code, "model_not_found");
  return true;
});

const content = [{ type: "image", image: IMAGE }];
const { text } = await generateText({ model: openai(MODEL), messages: [{ role: "user", content }], maxRetries: 0 });
assert.equal(text, LAST_TEXT);

const model = openai.textEmbeddingModel(EMBEDDING_MODEL);
const { embedding } = await embed({ model, value: prompt, maxRetries: 0 });
assert.deepEqual(embedding, [0.6, 0.8]);
