import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { crc32 } from "node:zlib";
import type { Answer, Framing, WireFixture } from "./fixture.ts";

export interface SentRequest {
  path: string;
  headers: IncomingHttpHeaders;
  body: Record<string, unknown>;
}

/** Next response of the server. */
export interface Scripted {
  status?: number;
  headers?: Record<string, string>;
  body: Buffer | string;
  /** End of the response, after its body; `hold` leaves it open. */
  ending?: "whole" | "reset" | "hold";
}

export interface ScriptedServer {
  origin: string;
  requests: SentRequest[];
  /** Answers the next requests, one each, in this order. */
  answer(...answers: Scripted[]): void;
  /** Forgets what was sent, and what was still to be answered. */
  reset(): void;
  /** Resolves when the caller's connection of the last request is gone. */
  closed(): Promise<void>;
  end(): Promise<void>;
}

/** An upstream that keeps what it was sent and answers what it was told to, in true shapes or broken ones. */
export async function startScriptedServer(): Promise<ScriptedServer> {
  const waiting: Scripted[] = [];
  const requests: SentRequest[] = [];
  let closed = Promise.resolve();
  const server = createServer(async (request, response) => {
    let text = "";
    closed = new Promise((resolve) => response.once("close", () => resolve()));
    for await (const chunk of request) text += chunk;
    requests.push({ path: request.url ?? "", headers: request.headers, body: JSON.parse(text) });
    const { status = 200, headers, body, ending = "whole" } = waiting.shift() ?? { status: 599, body: "{}" };
    response.writeHead(status, { "content-type": "application/json", ...headers });
    if (ending === "whole") response.end(body);
    else response.write(body, () => ending === "reset" && setTimeout(() => response.destroy(), 20));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    answer: (...answers) => void waiting.push(...answers),
    reset: () => {
      waiting.length = 0;
      requests.length = 0;
    },
    closed: () => closed,
    end: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An answer of a wire, streamed or whole. */
export function scripted(fixture: WireFixture, answer: Answer, stream: boolean): Scripted {
  if (!stream) return { body: JSON.stringify(answer.whole) };
  const end = Buffer.from(fixture.end ?? "");
  return {
    headers: { "content-type": TYPES[fixture.framing] },
    body: Buffer.concat([...answer.events.map((event) => framed(fixture.framing, event)), end]),
  };
}

export const TYPES: Record<Framing, string> = {
  data: "text/event-stream",
  named: "text/event-stream",
  frames: "application/vnd.amazon.eventstream",
};

/** One event of a stream, as it stands on the wire. */
export function framed(framing: Framing, event: unknown): Buffer {
  if (framing === "frames") {
    const [[type, payload] = ["", {}]] = Object.entries(event as object);
    return eventFrame(type, Buffer.from(JSON.stringify(payload)));
  }
  const name = framing === "named" ? `event: ${(event as { type: string }).type}\n` : "";
  return Buffer.from(`${name}data: ${JSON.stringify(event)}\n\n`);
}

/** A frame of an event, or of an exception. */
export function eventFrame(type: string, body: Buffer): Buffer {
  const isException = type.endsWith("Exception");
  const headers = {
    [isException ? ":exception-type" : ":event-type"]: type,
    ":content-type": "application/json",
    ":message-type": isException ? "exception" : "event",
  };
  return frame(Buffer.concat(Object.entries(headers).map(([name, value]) => header(name, value))), body);
}

/** A frame: lengths, their checksum, headers, payload, checksum of all (smithy.io/2.0/aws/amazon-eventstream.html). */
export function frame(headers: Buffer, body: Buffer): Buffer {
  const prelude = Buffer.alloc(8);
  prelude.writeUInt32BE(16 + headers.length + body.length, 0);
  prelude.writeUInt32BE(headers.length, 4);
  const rest = Buffer.concat([prelude, checksum(prelude), headers, body]);
  return Buffer.concat([rest, checksum(rest)]);
}

function header(name: string, value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(Buffer.byteLength(value));
  return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), Buffer.from([7]), length, Buffer.from(value)]);
}

function checksum(bytes: Buffer): Buffer {
  const written = Buffer.alloc(4);
  written.writeUInt32BE(crc32(bytes));
  return written;
}
