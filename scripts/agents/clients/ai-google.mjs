/** The AI SDK with its package for Google. */
import assert from "node:assert/strict";
import { createGoogle } from "@ai-sdk/google";
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const { ORIGIN, TOKEN: apiKey, MODEL, LAST_TEXT, IMAGE, SCENARIO } = process.env;
const google = createGoogle({ baseURL: `${ORIGIN}/v1beta`, apiKey });
const prompt = "Is all of it done?";

if (SCENARIO !== "task") {
  const onError = ({ error }) => console.error(error);
  for await (const piece of streamText({ model: google(MODEL), prompt, onError }).textStream)
    process.stdout.write(piece);
  process.exit(0);
}

const asked = [];
const look = tool({
  inputSchema: jsonSchema({ type: "object", properties: { what: { type: "string" } } }),
  execute: ({ what }) => {
    asked.push(what);
    return "The door is green.";
  },
});
const pieces = [];
const loop = { model: google(MODEL), prompt, tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0 };
for await (const piece of streamText(loop).textStream) pieces.push(piece);
assert.deepEqual(asked, ["the door"]);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
const content = [{ type: "image", image: IMAGE }];
const { text } = await generateText({ model: google(MODEL), messages: [{ role: "user", content }], maxRetries: 0 });
assert.equal(text, LAST_TEXT);
await assert.rejects(generateText({ model: google("none"), prompt, maxRetries: 0 }), (error) => {
  assert.ok(APICallError.isInstance(error));
  assert.equal(error.statusCode, 404);
  return true;
});
