import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, test } from "vitest";
import { renew } from "./actions.ts";

const WITHIN = { timeout: 15_000 };

/** A query that is shown, and what ends each of its readings. */
function shown(client: QueryClient, key: string) {
  const readings: ((text: string) => void)[] = [];
  const queryFn = () => new Promise<string>((resolve) => readings.push(resolve));
  const observer = new QueryObserver(client, { queryKey: [key, "list"], queryFn });
  observer.subscribe(() => {});
  return { readings, observer };
}

test("what was on its way at a change is read anew, also the first time", async () => {
  const client = new QueryClient();
  const { readings, observer } = shown(client, "tokens");
  for (const text of ["first", "second"]) {
    const before = readings.at(-1);
    const renewed = renew(client, ["organizations", "tokens"]);
    before?.("as it was before the change");
    await expect.poll(() => readings.at(-1), WITHIN).not.toBe(before);
    readings.at(-1)?.(text);
    await renewed;
    expect(observer.getCurrentResult().data).toBe(text);
  }
});

test("what the change does not touch is left as it is", async () => {
  const client = new QueryClient();
  const { readings, observer } = shown(client, "models");
  await renew(client, ["tokens"]);
  readings[0]?.("the only one");
  await expect.poll(() => observer.getCurrentResult().data, WITHIN).toBe("the only one");
  expect(readings).toHaveLength(1);
});
