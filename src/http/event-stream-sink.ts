import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import type { AnswerEnd, AnswerHead, AnswerPiece } from "../api/answer.ts";
import type { DecodedCompletion, EventEncoder } from "../api/wire.ts";
import type { ApiError } from "../errors.ts";
import type { AnswerSink } from "../gateway/answer.ts";
import { dropSentHeader } from "../internals/response.ts";
import { onClosed, SLOW_CLIENT_MS } from "./connection.ts";

const KEEP_ALIVE_MS = 10_000;

type Wire = Pick<DecodedCompletion, "events"> & Partial<Pick<DecodedCompletion, "keep">>;

interface StreamClient {
  /** Once it aborts, the answer ends and waits for its client no longer. */
  signal: AbortSignal;
  /** Ends the answer, because the client reads too slowly to go on. */
  abort(): void;
  /** Time for which it may read nothing; default: 60 s. */
  slowClientMs?: number;
}

/** Writes an answer as server-sent events, or as bytes, in the format of its wire. */
export class EventStreamSink implements AnswerSink {
  readonly streams = true;
  readonly #reply: FastifyReply;
  readonly #wire: Wire;
  readonly #client: StreamClient;
  readonly #events: EventWriter;
  /** Undefined before the answer is opened. */
  #encoder: EventEncoder | undefined;
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(reply: FastifyReply, wire: Wire, client: StreamClient) {
    this.#reply = reply;
    this.#wire = wire;
    this.#client = client;
    this.#events = new EventWriter(reply.raw);
  }

  open(head: AnswerHead): void {
    const encoder = this.#wire.events(head, (event) => this.#events.add(event));
    this.#encoder = encoder;
    this.#events.begin(
      {
        ...(this.#reply.getHeaders() as OutgoingHttpHeaders),
        ...head.headers,
        "content-type": encoder.contentType ?? "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
      },
      encoder.isBinary,
    );
    this.#events.flush();
    // A destroyed response emits no further close event that would end the interval.
    if (this.#reply.raw.destroyed) return;
    this.#keepAlive = setInterval(() => {
      this.#events.add(encoder.keepAlive);
      this.#events.flush();
    }, KEEP_ALIVE_MS);
    onClosed(this.#reply.raw, () => clearInterval(this.#keepAlive));
  }

  push(pieces: readonly AnswerPiece[], isFinished: boolean): Promise<void> | undefined {
    this.#encoder?.push(pieces);
    this.#events.flush(isFinished);
    this.#keepAlive?.refresh();
    return this.#reply.raw.writableNeedDrain ? this.#drained() : undefined;
  }

  close(end: AnswerEnd): Promise<void> | undefined {
    clearInterval(this.#keepAlive);
    const { keep } = this.#wire;
    // The rest waits until the answer is stored.
    if (keep !== undefined) this.#events.send();
    const answer = this.#encoder?.close(end);
    if (keep !== undefined) return keep(answer).then(() => this.#events.end());
    this.#events.end();
    return undefined;
  }

  fail(error: ApiError): void {
    this.#reply.request.failure = { error };
    clearInterval(this.#keepAlive);
    this.#encoder?.fail(error);
    if (this.#encoder?.isBinary === true) this.#reply.raw.destroy();
    else this.#events.end();
  }

  #drained(): Promise<void> {
    const { raw: response } = this.#reply;
    const { signal, abort, slowClientMs = SLOW_CLIENT_MS } = this.#client;
    return new Promise((resolve) => {
      const settled = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", settled);
        response.off("drain", settled);
        response.off("close", settled);
        resolve();
      };
      const timer = setTimeout(() => {
        abort();
        response.destroy();
        settled();
      }, slowClientMs);
      signal.addEventListener("abort", settled);
      response.on("drain", settled);
      response.on("close", settled);
    });
  }
}

/** Longer pending text is written at once, so that a slow reader is noticed. */
const PENDING_CHARACTERS_MAX = 16 * 1024;
/** Time that the last content waits for the end of the answer. */
const END_WAIT_MS = 25;

/**
 * Writes pending server-sent events in one chunk (RFC 9112, section 7.1), framed here: Node's own chunked encoding makes three
 * buffers of every write, on which a stream of small events would spend most of its time.
 */
class EventWriter {
  readonly #response: ServerResponse;
  /** False for HTTP/1.0, which has no chunked encoding. */
  #isChunked = false;
  #isBinary = false;
  #pending = "";
  #turnEnd: NodeJS.Immediate | undefined;
  #endTimer: NodeJS.Timeout | undefined;
  readonly send = () => {
    this.#unschedule();
    if (this.#pending === "") return;
    const { text, encoding } = this.#take("");
    this.#response.write(text, encoding);
    dropSentHeader(this.#response);
  };

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  begin(headers: OutgoingHttpHeaders, isBinary = false): void {
    this.#isBinary = isBinary;
    this.#response.writeHead(200, headers);
    this.#isChunked = this.#response.chunkedEncoding;
    this.#response.chunkedEncoding = false;
  }

  add(event: string): void {
    this.#pending += event;
  }

  /** Sends the pending events at the end of this turn; those that finish an answer together with its end. */
  flush(isFinished = false): void {
    if (this.#pending.length > PENDING_CHARACTERS_MAX) {
      this.send();
    } else if (isFinished) {
      clearImmediate(this.#turnEnd);
      this.#turnEnd = undefined;
      this.#endTimer ??= setTimeout(this.send, END_WAIT_MS);
    } else this.#turnEnd ??= setImmediate(this.send);
  }

  end(): void {
    this.#unschedule();
    const { text, encoding } = this.#take("0\r\n\r\n");
    this.#response.end(text, encoding);
  }

  #unschedule(): void {
    clearImmediate(this.#turnEnd);
    clearTimeout(this.#endTimer);
    this.#turnEnd = undefined;
    this.#endTimer = undefined;
  }

  /** Takes the pending text, framed as a chunk and followed by `end` where the response is chunked. */
  #take(end: string): { text: string; encoding: "latin1" | "utf8" } {
    const pending = this.#pending;
    // Counted once for all events: counting each copies its text.
    const byteLength = this.#isBinary ? pending.length : Buffer.byteLength(pending);
    this.#pending = "";
    // ASCII text is written faster with this encoding.
    const encoding = byteLength === pending.length ? "latin1" : "utf8";
    if (!this.#isChunked) return { text: pending, encoding };
    const chunk = byteLength === 0 ? "" : `${byteLength.toString(16)}\r\n${pending}\r\n`;
    return { text: chunk + end, encoding };
  }
}
