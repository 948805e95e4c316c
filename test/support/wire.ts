import type { AddressInfo } from "node:net";
import { createServer, type Server, type Socket } from "node:net";
import type { NativeRequest } from "../../src/api/wire.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { Provider, UpstreamChunk, UpstreamRequest } from "../../src/providers/provider.ts";
import type { ProviderSettings } from "../../src/providers/settings.ts";

/** An upstream below HTTP: it hands over the socket when a request is complete, and the test writes the bytes. */
export interface Wire {
  baseUrl: string;
  port: number;
  /** Each connection's requests, as text. */
  requests: string[];
  connections: number;
  /** By all open connections. */
  sentBytes(): number;
  /** Resolves when the peer of the last connection has gone. */
  closed(): Promise<void>;
  end(): Promise<void>;
}

export async function startWire(answer: (socket: Socket, request: string) => void): Promise<Wire> {
  const sockets = new Set<Socket>();
  const closings: Promise<void>[] = [];
  const server = createServer((socket) => {
    wire.connections += 1;
    sockets.add(socket);
    closings.push(new Promise((resolve) => socket.once("close", () => resolve())));
    socket.on("close", () => sockets.delete(socket)).on("error", () => {});
    let received = "";
    socket.setEncoding("latin1").on("data", (text) => {
      received += text;
      const length = lengthOf(received);
      if (length === undefined || received.length < length) return;
      const request = Buffer.from(received.slice(0, length), "latin1").toString("utf8");
      received = received.slice(length);
      wire.requests.push(request);
      answer(socket, request);
    });
  });
  const port = await listen(server);
  const wire: Wire = {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    port,
    requests: [],
    connections: 0,
    sentBytes: () => [...sockets].reduce((sum, { bytesWritten }) => sum + bytesWritten, 0),
    closed: async () => closings.at(-1),
    end: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return wire;
}

/** Listens on a free port of the loopback address. */
export async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

function lengthOf(received: string): number | undefined {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  return end + 4 + Number(/\r\ncontent-length: (\d+)/i.exec(received)?.[1] ?? 0);
}

/** A status line and headers; without a length, so that the body ends with the connection. */
export function head(status: number, headers: Record<string, string> = {}): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n`;
}

export const STREAM_HEAD = head(200, { "content-type": "text/event-stream" });
export const CHUNKED_HEAD = head(200, { "content-type": "text/event-stream", "transfer-encoding": "chunked" });

export const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
export const LAST_CHUNK = "0\r\n\r\n";

/** A whole answer that is not streamed. */
export function whole(status: number, body: unknown, headers: Record<string, string> = {}): string {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const length = String(Buffer.byteLength(text));
  return `${head(status, { "content-type": "application/json", "content-length": length, ...headers })}${text}`;
}

export const event = (body: unknown): string => `data: ${JSON.stringify(body)}\n\n`;
export const word = (content: string): string => event({ choices: [{ index: 0, delta: { content } }] });
export const finish = (reason = "stop"): string => event({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
export const usage = (fields: object): string => event({ choices: [], usage: fields });
export const DONE = "data: [DONE]\n\n";

export const completion = (content: string, fields: object = {}): object => ({
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 1 },
  ...fields,
});

export function settingsOf(baseUrl: string, fields: Partial<ProviderSettings> = {}): ProviderSettings {
  return {
    id: "upstream",
    kind: "openai-compatible",
    baseUrl,
    apiKey: null,
    headers: {},
    // Nothing is given up because a machine is busy.
    timeouts: { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 },
    ...fields,
  };
}

export const requestOf = (fields: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  model: "model",
  messages: [{ role: "user", content: "hello" }],
  max_tokens: 100,
  stream: true,
  ...fields,
});

export interface Heard {
  chunks: UpstreamChunk[];
  /** Number of items in which the chunks came. */
  items: number;
  text: string;
  error: unknown;
  /** Names of the hints that the provider left out. */
  ignored: readonly string[];
}

/** Sends a request and reads to the end: returns the chunks, and the error that ended them. */
export async function hear(
  provider: Provider,
  fields: Partial<UpstreamRequest> = {},
  signal: AbortSignal = new AbortController().signal,
  native?: NativeRequest,
): Promise<Heard> {
  const heard: Heard = { chunks: [], items: 0, text: "", error: undefined, ignored: [] };
  try {
    const answer = await provider.complete({ request: requestOf(fields), signal, native });
    heard.ignored = answer.ignored ?? [];
    for await (const chunks of answer.chunks) {
      heard.items += 1;
      heard.chunks.push(...chunks);
    }
  } catch (error) {
    heard.error = error;
  }
  heard.text = heard.chunks.map(({ delta }) => delta?.content ?? "").join("");
  return heard;
}

/** Answers one request with the given bytes, ends the connection, and returns the provider's result. */
export async function hearBytes(
  bytes: string | Buffer | ((socket: Socket) => void),
  fields: Partial<UpstreamRequest> = {},
  settings: Partial<ProviderSettings> = {},
): Promise<Heard> {
  const wire = await startWire((socket) => {
    if (typeof bytes === "function") bytes(socket);
    else socket.end(bytes);
  });
  const provider = createProvider(settingsOf(wire.baseUrl, settings), {});
  try {
    return await hear(provider, fields);
  } finally {
    await provider.close();
    await wire.end();
  }
}
