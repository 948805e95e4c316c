import { createServer } from "node:net";
import fastify from "fastify";
import { expect, onTestFinished, test, vi } from "vitest";
import { freePort } from "../../test/support/service.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { listenForMetrics, serveHealth } from "./health.ts";

test("/readyz checks the store once for concurrent requests, and again later.", async () => {
  const server = fastify();
  let asked = 0;
  const ping = async () => {
    asked += 1;
    if (asked > 1) throw new StoreUnavailableError("gone");
  };
  const ledgerStatus = async () => ({ spool: { entries: 0 }, deadLetters: { entries: 0 } });
  serveHealth(server, { ping, ledgerStatus }, { isDraining: false });
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

test("A port of its own serves the metrics to the holder of the token, and tells nothing of an error.", async () => {
  const port = await freePort();
  const read = vi.fn().mockResolvedValueOnce("up 1\n").mockRejectedValueOnce(new Error("inside"));
  const stop = await listenForMetrics({ host: "127.0.0.1", port }, { token: "token-of-the-test", read });
  onTestFinished(stop);
  const ask = async (headers: Record<string, string>) => {
    const answer = await fetch(`http://127.0.0.1:${port}/metrics`, { headers });
    return [answer.status, answer.headers.get("www-authenticate"), await answer.text()];
  };
  const bearer = { authorization: "Bearer token-of-the-test" };
  expect(await ask({})).toEqual([401, 'Bearer realm="metrics"', ""]);
  expect(await ask({ authorization: "Bearer another" })).toEqual([401, 'Bearer realm="metrics"', ""]);
  expect(await ask(bearer)).toEqual([200, null, "up 1\n"]);
  expect(await ask(bearer)).toEqual([500, null, ""]);
});

test("A port for the metrics that is in use is named, with the settings to change.", async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as { port: number };
  const failure = listenForMetrics({ host: "127.0.0.1", port }, { token: undefined, read: async () => "" });
  await expect(failure).rejects.toThrow(
    new OperatorError(
      `cannot listen on port ${port} of 127.0.0.1 for metrics: EADDRINUSE; change metrics.port or metrics.host`,
    ),
  );
});
