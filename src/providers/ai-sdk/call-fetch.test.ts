import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { Demand } from "./call-fetch.ts";

test("Pipes are fed one piece when their reader waits for it, and no piece ahead.", async () => {
  const demand = new Demand();
  let fed = 0;
  let piped: ReadableStream<number> = new ReadableStream(
    {
      pull: async (controller) => {
        await demand.unmet();
        fed += 1;
        controller.enqueue(fed);
      },
    },
    { highWaterMark: 0 },
  );
  for (let pipes = 0; pipes < 6; pipes += 1) piped = piped.pipeThrough(new TransformStream());
  const reader = piped.getReader();
  for (let piece = 1; piece <= 3; piece += 1) {
    expect((await demand.during(reader.read())).value).toBe(piece);
    for (let turns = 0; turns < 10; turns += 1) await turn();
    expect(fed).toBe(piece);
  }
});

test("A package may read the first piece of an answer before it returns a stream.", async () => {
  const demand = new Demand();
  await demand.unmet();
  await demand.during(Promise.resolve());
  let isMet = true;
  const unmet = demand.unmet().then(() => {
    isMet = false;
  });
  for (let turns = 0; turns < 10; turns += 1) await turn();
  expect(isMet).toBe(true);
  await demand.during(unmet);
});
