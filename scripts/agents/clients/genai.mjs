/** Google's library: models, a stream, a loop of two turns with a tool, an image, and the count of a prompt's tokens. */
import assert from "node:assert/strict";
import { GoogleGenAI } from "@google/genai";

const { ORIGIN: baseUrl, TOKEN: apiKey, MODEL: model, LAST_TEXT, IMAGE, SCENARIO } = process.env;
const ai = new GoogleGenAI({ apiKey, httpOptions: { baseUrl } });
const contents = "Is all of it done?";

if (SCENARIO !== "task") {
  for await (const { text } of await ai.models.generateContentStream({ model, contents })) {
    process.stdout.write(text ?? "");
  }
  process.exit(0);
}

const models = [];
for await (const { name } of await ai.models.list()) models.push(name);
assert.ok(models.includes(`models/${model}`));

const chat = ai.chats.create({
  model,
  config: {
    systemInstruction: "Answer shortly.",
    tools: [
      {
        functionDeclarations: [
          {
            name: "look",
            description: "Looks at the door.",
            parametersJsonSchema: { type: "object", properties: { what: { type: "string" } } },
          },
        ],
      },
    ],
  },
});
const first = await chat.sendMessage({ message: contents });
assert.deepEqual(
  first.functionCalls?.map(({ name, args }) => [name, args]),
  [["look", { what: "the door" }]],
);
const { id, name } = first.functionCalls[0];
const result = { functionResponse: { id, name, response: { output: "The door is green." } } };
const pieces = [];
for await (const { text } of await chat.sendMessageStream({ message: [result] })) if (text) pieces.push(text);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);

const inlineData = { mimeType: "image/png", data: IMAGE.split(",")[1] };
const seen = await ai.models.generateContent({ model, contents: [{ role: "user", parts: [{ inlineData }] }] });
assert.equal(seen.text, LAST_TEXT);
assert.ok((await ai.models.countTokens({ model, contents })).totalTokens > 0);
await assert.rejects(ai.models.generateContent({ model: "none", contents }), { status: 404 });
