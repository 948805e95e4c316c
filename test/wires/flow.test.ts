import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import { createProvider } from "../../src/providers/index.ts";
import { settingsOf } from "../support/wire.ts";
import { FIXTURES } from "./fixtures.ts";
import { framed } from "./scripted-server.ts";

const OFFERED_BYTES = 64 * 1024 * 1024;
/** Bytes that sockets, pipes and packages may buffer. */
const KEPT_BYTES_MAX = 12 * 1024 * 1024;

/** Writes the same event for as long as somebody takes it; tells how much that was. */
async function startFlood(begin: Buffer, again: Buffer, mediaType: string) {
  const batch = Buffer.concat(Array.from({ length: Math.ceil(65_536 / again.length) }, () => again));
  let written = 0;
  const flood = (response: ServerResponse) => {
    while (written < OFFERED_BYTES && !response.destroyed) {
      written += batch.length;
      if (!response.write(batch)) return void response.once("drain", () => flood(response));
    }
  };
  const closed = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    request.resume();
    response.once("close", () => closed.resolve());
    response.writeHead(200, { "content-type": mediaType });
    response.write(begin);
    flood(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    written: () => written,
    closed: closed.promise,
    end: () => new Promise((resolve) => server.close(resolve)),
  };
}

describe.each(FIXTURES)("$kind", (fixture) => {
  test("an answer that nobody reads stays where it comes from", async () => {
    const { kind, basePath, framing, model, text } = fixture;
    const first = text.events.findIndex((event) => JSON.stringify(event).includes('"Hello "'));
    const begin = Buffer.concat(text.events.slice(0, first).map((event) => framed(framing, event)));
    const mediaType = framing === "frames" ? "application/vnd.amazon.eventstream" : "text/event-stream";
    const flood = await startFlood(begin, framed(framing, text.events[first]), mediaType);
    const { apiKey = null, ...settings } = fixture.settings;
    const provider = createProvider(settingsOf(`${flood.origin}${basePath}`, { kind, apiKey, ...settings }), {});
    const request = { model, messages: [{ role: "user" as const, content: "hello" }], max_tokens: 100, stream: true };
    const { chunks } = await provider.complete({ request, signal: new AbortController().signal });
    for await (const _one of chunks) {
      let before = -1;
      // Until nothing more is taken from it.
      while (flood.written() > before) {
        before = flood.written();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      expect(before).toBeLessThan(KEPT_BYTES_MAX);
      break;
    }
    await flood.closed;
    await provider.close();
    await flood.end();
  });
});
