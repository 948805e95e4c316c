import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { AnswerEnd, AnswerHead, AnswerPiece } from "../api/answer.ts";
import type { DecodedCompletion, EventEncoder } from "../api/wire.ts";
import type { ApiError } from "../errors.ts";
import type { AnswerSink } from "../gateway/answer.ts";
import { dropSentHeader } from "../internals/response.ts";
import { onClosed, SLOW_CLIENT_MS } from "./connection.ts";

const KEEP_ALIVE_MS = 10_000;

export interface EventStreamOptions {
  response: ServerResponse;
  /** Response headers in addition to those of every event stream. */
  headers: OutgoingHttpHeaders;
  events: DecodedCompletion["events"];
  /** Stores what later requests can refer to, before the last bytes are sent. Takes what the encoder returned. */
  keep?: ((answer: unknown) => Promise<void>) | undefined;
  /** Called with the error that ends the stream. */
  onFailed?: (error: ApiError) => void;
  /** Called when the client reads too slowly to go on. */
  onStalled: () => void;
  /** Once it aborts, the answer ends and waits for its client no longer. */
  signal?: AbortSignal;
  /** Time for which a client may read nothing. Default: 60 s. */
  slowClientMs?: number;
}

/** Writes an answer as server-sent events, in the format of its wire. */
export class EventStreamSink implements AnswerSink {
  readonly streams = true;
  readonly #options: EventStreamOptions;
  readonly #response: ServerResponse;
  readonly #events: EventWriter;
  /** Undefined before the answer is opened. */
  #encoder: EventEncoder | undefined;
  /** True after the finish reason: only the usage and the end follow. */
  #isFinished = false;
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(options: EventStreamOptions) {
    this.#options = options;
    this.#response = options.response;
    this.#events = new EventWriter(options.response);
  }

  open(head: AnswerHead): void {
    const encoder = this.#options.events(head, (event) => this.#events.add(event));
    this.#encoder = encoder;
    this.#events.begin({
      ...this.#options.headers,
      ...head.headers,
      "content-type": encoder.contentType ?? "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    });
    this.#events.flush();
    // A destroyed response emits no further close event that would end the interval.
    if (this.#response.destroyed) return;
    this.#keepAlive = setInterval(() => {
      this.#events.add(encoder.keepAlive);
      this.#events.flush();
    }, KEEP_ALIVE_MS);
    onClosed(this.#response, () => clearInterval(this.#keepAlive));
  }

  push(pieces: readonly AnswerPiece[]): Promise<void> | undefined {
    this.#encoder?.push(pieces);
    if (pieces.some(({ finish_reason }) => finish_reason !== undefined)) this.#isFinished = true;
    if (this.#isFinished) this.#events.flushWithEnd();
    else this.#events.flush();
    this.#keepAlive?.refresh();
    return this.#response.writableNeedDrain ? this.#drained() : undefined;
  }

  close(end: AnswerEnd): Promise<void> | undefined {
    clearInterval(this.#keepAlive);
    const { keep } = this.#options;
    if (keep !== undefined) this.#events.hold();
    const answer = this.#encoder?.close(end);
    if (keep !== undefined) return keep(answer).then(() => this.#events.end());
    this.#events.end();
    return undefined;
  }

  fail(error: ApiError): void {
    this.#options.onFailed?.(error);
    clearInterval(this.#keepAlive);
    this.#encoder?.fail(error);
    this.#events.end();
  }

  #drained(): Promise<void> {
    const { signal } = this.#options;
    return new Promise((resolve) => {
      const settled = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", settled);
        this.#response.off("drain", settled);
        this.#response.off("close", settled);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#options.onStalled();
        settled();
      }, this.#options.slowClientMs ?? SLOW_CLIENT_MS);
      signal?.addEventListener("abort", settled);
      this.#response.on("drain", settled);
      this.#response.on("close", settled);
    });
  }
}

/** Longer pending text is written at once, so that a slow reader is noticed. */
const PENDING_CHARACTERS_MAX = 16 * 1024;
/** Time that the last content waits for the end of the answer. */
const END_WAIT_MS = 25;

/**
 * Writes server-sent events. Pending events go to the socket in one write and in one chunk (RFC 9112, section 7.1).
 * Node's own chunked encoding makes three buffers of every write, on which a stream of small events would spend most of
 * its time; so the chunks are framed here, and Node's encoding is off.
 */
class EventWriter {
  readonly #response: ServerResponse;
  /** False for HTTP/1.0, which has no chunked encoding. */
  #isChunked = false;
  #pending = "";
  #turnEnd: NodeJS.Immediate | undefined;
  #endTimer: NodeJS.Timeout | undefined;
  readonly #send = () => {
    this.#unschedule();
    if (this.#pending === "") return;
    const { text, encoding } = this.#take("");
    this.#response.write(text, encoding);
    dropSentHeader(this.#response);
  };

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  /** Writes the headers. */
  begin(headers: OutgoingHttpHeaders): void {
    this.#response.writeHead(200, headers);
    this.#isChunked = this.#response.chunkedEncoding;
    this.#response.chunkedEncoding = false;
  }

  /** Adds an event to the pending text: whole lines with the empty line at its end. */
  add(event: string): void {
    this.#pending += event;
  }

  /** Sends the pending events at the end of this turn of the event loop. */
  flush(): void {
    if (this.#pending.length > PENDING_CHARACTERS_MAX) this.#send();
    else this.#turnEnd ??= setImmediate(this.#send);
  }

  /** Sends the pending events together with the end of the answer if that follows soon. */
  flushWithEnd(): void {
    if (this.#pending.length > PENDING_CHARACTERS_MAX) {
      this.#send();
      return;
    }
    clearImmediate(this.#turnEnd);
    this.#turnEnd = undefined;
    this.#endTimer ??= setTimeout(this.#send, END_WAIT_MS);
  }

  /** Sends the pending events now. Those that follow wait for the end of the response. */
  hold(): void {
    this.#send();
  }

  /** Sends the pending events and ends the response. */
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
    const byteLength = Buffer.byteLength(pending);
    this.#pending = "";
    // ASCII text is written faster with this encoding.
    const encoding = byteLength === pending.length ? "latin1" : "utf8";
    if (!this.#isChunked) return { text: pending, encoding };
    const chunk = byteLength === 0 ? "" : `${byteLength.toString(16)}\r\n${pending}\r\n`;
    return { text: chunk + end, encoding };
  }
}
