import { expect, test } from "vitest";
import { messageEvents } from "../../src/api/messages/encode.ts";
import { publicError } from "../../src/gateway/failures.ts";
import { DONE, event, finish, hearBytes, STREAM_HEAD, usage, word } from "../support/wire.ts";

const HEAD = { id: "0".repeat(32), created: 0, model: "m", organizationId: "org", headers: {} };
const BODY = [
  event({ choices: [{ index: 0, delta: { reasoning_content: "Hm…" } }] }),
  word("Hëllo"),
  event({
    choices: [
      { index: 0, delta: { tool_calls: [{ index: 0, id: "a", function: { name: "f", arguments: '{"x":' } }] } },
    ],
  }),
  event({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: "1}" } }] } }] }),
  finish("tool_calls"),
  usage({ prompt_tokens: 3, completion_tokens: 4 }),
  DONE,
].join("");

/** Returns the types of the events that the client of a stream receives whose upstream sends these bytes. */
async function typesAfter(bytes: Buffer): Promise<string[]> {
  const { chunks, error } = await hearBytes(bytes);
  let text = "";
  const add = (one: string) => {
    text += one;
  };
  const encoder = messageEvents(HEAD, add);
  encoder.push(chunks);
  const end = { finishReason: "tool_calls" as const, headers: {} };
  if (error !== undefined) encoder.fail(publicError(error));
  else encoder.close({ ...end, usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 } });
  return text
    .trimEnd()
    .split("\n\n")
    .map((one) => JSON.parse(one.slice(one.indexOf("\ndata: ") + 7)).type as string);
}

test("A stream whose upstream breaks off at any byte ends with either an error event or message_stop.", async () => {
  const head = Buffer.from(STREAM_HEAD);
  const body = Buffer.from(BODY);
  const whole = await typesAfter(Buffer.concat([head, body]));
  expect(whole.at(-1)).toBe("message_stop");
  let broken = 0;
  for (let length = 0; length < body.length; length += 1) {
    const types = await typesAfter(Buffer.concat([head, body.subarray(0, length)]));
    const isBroken = types.at(-1) === "error";
    broken += isBroken ? 1 : 0;
    if (isBroken) expect(types.slice(0, -1)).toEqual(whole.slice(0, types.length - 1));
    else expect(types).toEqual(whole);
    expect(types.filter((type) => type === "error" || type === "message_stop")).toHaveLength(1);
  }
  expect(broken).toBeGreaterThan(Buffer.byteLength(BODY) / 2);
});
