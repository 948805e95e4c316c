/** The AI SDK with one of its packages: with that for OpenAI, its default is the Responses API. */
import assert from "node:assert/strict";
import { APICallError, embed, generateText, streamText } from "ai";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL, EMBEDDING_MODEL, LAST_TEXT, IMAGE, SCENARIO, PACKAGE } = process.env;
const { createOpenAI, createOpenAICompatible, createAnthropic } = await import(PACKAGE);
const create = createOpenAI ?? createOpenAICompatible ?? createAnthropic;
const provider = create({ name: "tollgate", baseURL, apiKey });
const prompt = "Is all of it done?";

if (SCENARIO !== "task") {
  const onError = ({ error }) => console.error(error);
  for await (const piece of streamText({ model: provider(MODEL), prompt, onError }).textStream)
    process.stdout.write(piece);
  process.exit(0);
}

const pieces = [];
for await (const piece of streamText({ model: provider(MODEL), prompt, maxRetries: 0 }).textStream) pieces.push(piece);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
await assert.rejects(generateText({ model: provider("none"), prompt, maxRetries: 0 }), (error) => {
  assert.ok(APICallError.isInstance(error));
  assert.equal(error.statusCode, 404);
  assert.match(error.responseBody, /model_not_found|not_found_error/);
  return true;
});

const content = [{ type: "image", image: IMAGE }];
const { text } = await generateText({ model: provider(MODEL), messages: [{ role: "user", content }], maxRetries: 0 });
assert.equal(text, LAST_TEXT);

if (createAnthropic === undefined) {
  const model = (provider.embeddingModel ?? provider.textEmbeddingModel)(EMBEDDING_MODEL);
  const { embedding } = await embed({ model, value: prompt, maxRetries: 0 });
  assert.deepEqual(embedding, [0.6, 0.8]);
}
