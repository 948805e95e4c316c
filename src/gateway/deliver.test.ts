import { expect, test } from "vitest";
import { toolCallCompleter } from "./deliver.ts";

test("Half a million tool calls get ids that are unique, each in a time that does not grow with their number.", () => {
  const complete = toolCallCompleter("01a1fc9f-afa2-71b3-8203-c2d4d7bab152");
  const count = 500_000;
  const ids = new Set<string | undefined>();
  for (let index = 0; index < count; index += 1) {
    // Every other upstream id repeats the one before.
    const [piece] = complete([{ delta: { tool_calls: [{ index, id: `call_of_${index - (index % 2)}` }] } }]);
    ids.add(piece?.delta?.tool_calls?.[0]?.id);
  }
  expect(ids.size).toBe(count);
}, 180_000);
