import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { describe, expect, test } from "vitest";
import { IdempotencyKeys, renew } from "./actions.ts";
import { ApiFailure } from "./client.ts";

const WITHIN = { timeout: 15_000 };

/** Observes a query. Each entry of `readings` resolves one of its fetches. */
function shown(client: QueryClient, key: string) {
  const readings: ((text: string) => void)[] = [];
  const queryFn = () => new Promise<string>((resolve) => readings.push(resolve));
  const observer = new QueryObserver(client, { queryKey: [key, "list"], queryFn });
  observer.subscribe(() => {});
  return { readings, observer };
}

test("A query that is in flight during a change is fetched again, also if it is the first fetch.", async () => {
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

test("A query that a change does not affect is not fetched again.", async () => {
  const client = new QueryClient();
  const { readings, observer } = shown(client, "models");
  await renew(client, ["tokens"]);
  readings[0]?.("the only one");
  await expect.poll(() => observer.getCurrentResult().data, WITHIN).toBe("the only one");
  expect(readings).toHaveLength(1);
});

describe("an idempotency key", () => {
  const input = { amount: 50 };

  test("An idempotency key is a UUID and stays the same for a retry after an unknown outcome.", () => {
    const keys = new IdempotencyKeys();
    const key = keys.keyFor(input);
    expect(key).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
    const unknown = [new TypeError("Failed to fetch"), new ApiFailure(502, "Bad gateway")];
    const running = new ApiFailure(409, "It still runs", { code: "idempotency_in_progress" });
    for (const error of [...unknown, running]) {
      keys.failed(error);
      expect(keys.keyFor({ ...input })).toBe(key);
    }
  });

  test("An idempotency key is new for other content, after a refusal, and in another form.", () => {
    const keys = new IdempotencyKeys();
    const first = keys.keyFor(input);
    const second = keys.keyFor({ amount: 5 });
    const third = keys.keyFor(input);
    keys.failed(new ApiFailure(400, "Too much"));
    const made = [first, second, third, keys.keyFor(input), new IdempotencyKeys().keyFor(input)];
    expect(new Set(made).size).toBe(5);
  });
});
