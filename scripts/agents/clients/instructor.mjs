/** Instructor on OpenAI's library: an answer in the form of a schema, by a tool. */
import assert from "node:assert/strict";
import Instructor from "@instructor-ai/instructor";
import OpenAI from "openai";
import { z } from "zod";

const { BASE_URL: baseURL, TOKEN: apiKey, MODEL: model, SCENARIO } = process.env;
const client = Instructor({ client: new OpenAI({ baseURL, apiKey }), mode: "TOOLS" });
const messages = [{ role: "user", content: "Is all of it done?" }];

if (SCENARIO !== "task") {
  const stream = await client.chat.completions.create({ model, messages, stream: true });
  for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
  process.exit(0);
}

const response_model = { schema: z.object({ what: z.string() }), name: "look" };
const found = await client.chat.completions.create({ model, messages, response_model });
assert.equal(found.what, "the door");
const lost = client.chat.completions.create({ model: "none", messages, response_model, max_retries: 0 });
await assert.rejects(lost, { status: 404, code: "model_not_found" });
