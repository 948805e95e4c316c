import type { Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { gzipSync } from "node:zlib";
import {
  CHUNKED_HEAD,
  chunked,
  completion,
  DONE,
  event,
  finish,
  head,
  LAST_CHUNK,
  STREAM_HEAD,
  usage,
  whole,
  word,
} from "../support/wire.ts";

/** Actions of an upstream on a socket once it has read a request. */
export type Script = (socket: Socket) => void;

/** Usage that upstreams report for an answer, if they report a possible one. */
export const REPORTED = { prompt_tokens: 3, completion_tokens: 1 };
/** A stream that is complete but for what a case changes. */
export const BODY = word("a") + finish() + usage(REPORTED) + DONE;

export const sends =
  (...parts: (string | Buffer)[]): Script =>
  (socket) =>
    void socket.end(Buffer.concat(parts.map((part) => Buffer.from(part))));

/** Sends, and then cuts the connection so that what was sent still arrives. */
export const sendsAndResets =
  (text: string | Buffer): Script =>
  (socket) =>
    void socket.write(text, () => setTimeout(() => socket.resetAndDestroy(), 30));

/** Sends, and then neither says more nor ends. */
export const sendsAndWaits =
  (text: string | Buffer): Script =>
  (socket) =>
    void socket.write(text);

/** A stream with a body that ends with its connection. */
export const streams = (body: string | Buffer): Script => sends(STREAM_HEAD, body);
export const answers = (status: number, body: unknown, headers: Record<string, string> = {}): Script =>
  sends(whole(status, body, headers));
/** An unstreamed answer that is complete but for what a case changes. */
export const answersWith = (fields: object): Script => answers(200, completion("a", fields));

/** Sends text byte by byte, each in a chunk of its own; bytes of one character are apart whatever the sockets do. */
export function dribbles(type: string, text: string | Buffer): Script {
  const bytes = [...Buffer.from(text)];
  const pieces = bytes.map((byte) => Buffer.concat([Buffer.from("1\r\n"), Buffer.of(byte), Buffer.from("\r\n")]));
  return sends(head(200, { "content-type": type, "transfer-encoding": "chunked" }), ...pieces, LAST_CHUNK);
}

/** Writes pieces for as long as the other side takes them, at most so many bytes. */
export function floods(first: string | Buffer, piece: string | Buffer, bytesMax: number): Script {
  return (socket) => {
    let written = 0;
    const write = (failure?: Error | null) => {
      if (failure || socket.destroyed) return;
      if (written >= bytesMax) {
        socket.end();
        return;
      }
      written += piece.length;
      socket.write(piece, write);
    };
    socket.write(first, write);
  };
}

/** Begins an answer and never ends its headers. */
export const dribblesHeaders: Script = (socket) => {
  const bytes = [..."HTTP/1.1 200 OK\r\nx-long: "];
  const timer = setInterval(() => socket.write(bytes.shift() ?? "x"), 25);
  socket.once("close", () => clearInterval(timer));
};

export function gzipBomb(type: string): Script {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
  const headers = { "content-type": type, "content-encoding": "gzip", "content-length": String(bomb.length) };
  return sends(head(200, headers), bomb);
}

export const inChunks = (body: string): string => CHUNKED_HEAD + chunked(body);

/** An upstream for TLS that has no certificate: every handshake fails. */
export function createServerWithoutCertificate() {
  return createTlsServer({}).on("tlsClientError", () => {});
}

export const errorInside = event({ error: { message: "no more", type: "server_error" } });
