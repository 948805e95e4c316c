/** OpenAI's Agents SDK with its defaults: the Responses API, streamed, with a tool. */
import assert from "node:assert/strict";
import { Agent, run, setDefaultOpenAIClient, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL: model, LAST_TEXT, SCENARIO } = process.env;
setTracingDisabled(true);
setDefaultOpenAIClient(new OpenAI({ baseURL, apiKey, ...(SCENARIO === "task" && { maxRetries: 0 }) }));

if (SCENARIO !== "task") {
  const result = await run(new Agent({ name: "Painter", model }), "Is all of it done?", { stream: true });
  for await (const piece of result.toTextStream()) process.stdout.write(piece);
  await result.completed;
  process.exit(0);
}

const asked = [];
const look = tool({
  name: "look",
  description: "Looks at the door.",
  parameters: z.object({ what: z.string() }),
  execute: ({ what }) => {
    asked.push(what);
    return "The door is green.";
  },
});
const agent = new Agent({ name: "Painter", instructions: "Answer shortly.", model, tools: [look] });
const result = await run(agent, "Is all of it done?", { stream: true });
const pieces = [];
for await (const piece of result.toTextStream()) pieces.push(piece);
await result.completed;
assert.deepEqual(asked, ["the door"]);
assert.equal(pieces.join(""), LAST_TEXT);
assert.ok(pieces.length > 3);

const lost = new Agent({ name: "Lost", model: "none" });
await assert.rejects(run(lost, "Is all of it done?"), { status: 404, code: "model_not_found" });
