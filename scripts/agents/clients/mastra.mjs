/** An agent of Mastra, with Tollgate as an OpenAI-compatible provider. */
import assert from "node:assert/strict";
import { Agent } from "@mastra/core/agent";

const { BASE_URL: url, TOKEN: apiKey, MODEL: modelId, LAST_TEXT, SCENARIO } = process.env;
const agentWith = (id, more = { maxRetries: 0 }) =>
  new Agent({
    id: "painter",
    name: "Painter",
    instructions: "Answer shortly.",
    model: { providerId: "tollgate", modelId: id, url, apiKey },
    ...more,
  });

if (SCENARIO !== "task") {
  const { textStream } = await agentWith(modelId, {}).stream("Is all of it done?");
  for await (const piece of textStream) process.stdout.write(piece);
  process.exit(0);
}

const { textStream } = await agentWith(modelId).stream("Is all of it done?");
const pieces = [];
for await (const piece of textStream) pieces.push(piece);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);
await assert.rejects(agentWith("none").generate("Is all of it done?"), { statusCode: 404 });
