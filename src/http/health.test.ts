import fastify from "fastify";
import { expect, onTestFinished, test, vi } from "vitest";
import { StoreUnavailableError } from "../errors.ts";
import { serveHealth } from "./health.ts";

test("/readyz checks the store once for concurrent requests, and again later.", async () => {
  const server = fastify();
  let asked = 0;
  const ping = async () => {
    asked += 1;
    if (asked > 1) throw new StoreUnavailableError("gone");
  };
  serveHealth(server, { ping, ledgerStatus: async () => ({ spool: { entries: 0 }, quarantine: { entries: 0 } }) });
  // With fake timers, all requests count as concurrent even on a busy machine.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const statusOf = async () => (await server.inject("/readyz")).statusCode;
  const statuses = await Promise.all(Array.from({ length: 50 }, statusOf));
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(asked).toBe(1);
  vi.advanceTimersByTime(1_000);
  expect(await statusOf()).toBe(503);
  await server.close();
});
