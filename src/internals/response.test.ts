import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { dropSentHeader } from "./response.ts";

const server = createServer();
afterEach(() => server.close());

test("A response whose header is dropped after it was sent reaches its client whole.", async () => {
  const headers: unknown[] = [];
  const headerOf = (response: ServerResponse) => (response as unknown as { _header: unknown })._header;
  server.on("request", (_request, response: ServerResponse) => {
    response.writeHead(200, { "content-type": "text/plain", "x-request-id": "req_1" });
    dropSentHeader(response);
    headers.push(headerOf(response));
    response.write("one ");
    setImmediate(() => {
      dropSentHeader(response);
      headers.push(headerOf(response), response.headersSent);
      response.write("two ");
      setImmediate(() => response.end("three"));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  expect(await answer.text()).toBe("one two three");
  expect(answer.headers.get("x-request-id")).toBe("req_1");
  expect(headers).toEqual([expect.stringContaining("x-request-id: req_1"), "sent", true]);
});
