import { createServer as createHttpServer } from "node:http";
import { describe, expect, test } from "vitest";
import {
  CHUNKED_HEAD,
  chunked,
  completion,
  DONE,
  finish,
  hear,
  hearBytes,
  LAST_CHUNK,
  listen,
  STREAM_HEAD,
  settingsOf,
  startWire,
  usage,
  whole,
  word,
} from "../../test/support/wire.ts";
import { createProvider } from "./index.ts";

describe("An answer that breaks off", () => {
  test.each([
    ["after the headers", CHUNKED_HEAD],
    ["inside an event", CHUNKED_HEAD + chunked(word("a")) + chunked('data: {"choi')],
    ["inside a chunk", `${CHUNKED_HEAD}ff\r\ndata: `],
  ])("fails after the chunks before the break: %s.", async (_name, bytes) => {
    const closed = await hearBytes(bytes);
    expect(closed.error).toMatchObject({ failure: "failed" });
    const reset = await hearBytes((socket) =>
      socket.write(bytes, () => setTimeout(() => socket.resetAndDestroy(), 20)),
    );
    expect(reset.error).toMatchObject({ failure: "failed" });
    expect([closed.text, reset.text]).toEqual(bytes.includes('"a"') ? ["a", "a"] : ["", ""]);
  });

  test("fails if it is not streamed.", async () => {
    const bytes = whole(200, completion("hello")).slice(0, -5);
    expect((await hearBytes(bytes, { stream: false })).error).toMatchObject({ failure: "failed" });
  });

  test("is complete if its finish reason and usage arrived.", async () => {
    const bytes = CHUNKED_HEAD + chunked(word("a") + finish() + usage({ prompt_tokens: 1, completion_tokens: 1 }));
    const heard = await hearBytes((socket) =>
      socket.write(bytes, () => setTimeout(() => socket.resetAndDestroy(), 20)),
    );
    expect(heard.error).toBeUndefined();
    expect(heard.chunks.at(-1)).toEqual({ usage: { prompt_tokens: 1, completion_tokens: 1 } });
  });
});

describe("Connections", () => {
  test("are reused by streamed and unstreamed requests.", async () => {
    let turn = 0;
    const wire = await startWire((socket) => {
      turn += 1;
      socket.write(
        turn % 2 === 0 ? whole(200, completion("b")) : CHUNKED_HEAD + chunked(word("a") + finish() + DONE) + LAST_CHUNK,
      );
    });
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    for (let count = 0; count < 4; count += 1) {
      expect((await hear(provider, { stream: count % 2 === 0 })).error).toBeUndefined();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(wire.connections).toBe(1);
    await provider.close();
    await wire.end();
  });

  test("are as many as there are concurrent requests.", async () => {
    let open = 0;
    const wire = await startWire((socket) => {
      open += 1;
      if (open === 20) for (const waiting of sockets) waiting.end(whole(200, completion("a")));
      sockets.push(socket);
      if (open === 20) socket.end(whole(200, completion("a")));
    });
    const sockets: import("node:net").Socket[] = [];
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    const heard = await Promise.all(Array.from({ length: 20 }, () => hear(provider, { stream: false })));
    expect(heard.map(({ text }) => text)).toEqual(Array.from({ length: 20 }, () => "a"));
    await provider.close();
    await wire.end();
  });

  test("are reused after an error whose body was read to its end.", async () => {
    const wire = await startWire((socket) => socket.write(whole(500, { error: { message: "no" } })));
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    for (let count = 0; count < 3; count += 1) {
      expect((await hear(provider)).error).toMatchObject({ failure: "failed" });
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(wire.connections).toBe(1);
    await provider.close();
    await wire.end();
  });
});

describe("Proxies of the environment:", () => {
  async function throughProxy(environment: (proxy: string) => Record<string, string>, baseUrl: string) {
    const targets: string[] = [];
    const proxy = createHttpServer((request, response) => {
      targets.push(request.url ?? "");
      response.setHeader("content-type", "application/json").end(JSON.stringify(completion("by proxy")));
    });
    proxy.on("connect", (request, socket) => {
      targets.push(`CONNECT ${request.url}`);
      socket.end("HTTP/1.1 502 No\r\n\r\n");
    });
    const port = await listen(proxy);
    const provider = createProvider(settingsOf(baseUrl), environment(`http://127.0.0.1:${port}`));
    const heard = await hear(provider, { stream: false });
    await provider.close();
    proxy.closeAllConnections();
    await new Promise((resolve) => proxy.close(resolve));
    return { heard, targets };
  }

  test("HTTP_PROXY is used for http addresses.", async () => {
    const { heard, targets } = await throughProxy((proxy) => ({ HTTP_PROXY: proxy }), "http://upstream.invalid/v1");
    expect(heard.text).toBe("by proxy");
    expect(targets).toEqual(["http://upstream.invalid/v1/chat/completions"]);
  });

  test("HTTPS_PROXY opens a tunnel, and a refused tunnel is reported as unavailable.", async () => {
    const { heard, targets } = await throughProxy((proxy) => ({ https_proxy: proxy }), "https://upstream.invalid/v1");
    expect(heard.error).toMatchObject({ failure: "unavailable" });
    expect(targets).toEqual(["CONNECT upstream.invalid:443"]);
  });

  test("NO_PROXY excludes a host.", async () => {
    const environment = (proxy: string) => ({ HTTP_PROXY: proxy, NO_PROXY: "other,.invalid" });
    const { heard, targets } = await throughProxy(environment, "http://upstream.invalid/v1");
    expect(heard.error).toMatchObject({ failure: "unavailable" });
    expect(targets).toEqual([]);
  });

  test("a loopback address is always excluded.", async () => {
    const wire = await startWire((socket) => socket.end(whole(200, completion("straight"))));
    const { heard, targets } = await throughProxy((proxy) => ({ HTTP_PROXY: proxy, HTTPS_PROXY: proxy }), wire.baseUrl);
    expect(heard.text).toBe("straight");
    expect(targets).toEqual([]);
    await wire.end();
    const other = await throughProxy((proxy) => ({ HTTP_PROXY: proxy }), "http://127.0.0.2:1/v1");
    expect(other.heard.error).toMatchObject({ failure: "unavailable" });
    expect(other.targets).toEqual([]);
  });
});

test("A stream without a length ends with its connection.", async () => {
  const heard = await hearBytes(STREAM_HEAD + word("a") + finish() + DONE);
  expect(heard).toMatchObject({ text: "a", error: undefined });
});
