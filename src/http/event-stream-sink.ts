import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Delta } from "../api/chat/completion.ts";
import type { ApiError } from "../errors.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "../gateway/answer.ts";
import { SLOW_CLIENT_MS } from "./connection.ts";

const KEEP_ALIVE_MS = 10_000;

export interface EventStreamOptions {
  response: ServerResponse;
  /** Response headers in addition to those of every event stream. */
  headers: OutgoingHttpHeaders;
  includeUsage: boolean;
  /** Called with the error that ends the stream. */
  onFailed?: (error: ApiError) => void;
  /** Called when the client reads too slowly to go on. */
  onStalled: () => void;
  /** Time for which a client may read nothing. Default: 60 s. */
  slowClientMs?: number;
}

/** Writes an answer as server-sent events in the format of OpenAI. */
export class EventStreamSink implements AnswerSink {
  readonly streams = true;
  readonly #options: EventStreamOptions;
  readonly #response: ServerResponse;
  readonly #events: EventWriter;
  /** Beginning of every event, before its choice. */
  #prefix = "";
  /** Text around the content of an event with only content, which most events are. */
  #beforeContent = "";
  #afterContent = "";
  #aroundContentBytes = 0;
  /** True when any text, refusal or tool call was sent. */
  #hasContent = false;
  /** True after the finish reason: only the usage and the end follow. */
  #isFinished = false;
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(options: EventStreamOptions) {
    this.#options = options;
    this.#response = options.response;
    this.#events = new EventWriter(options.response);
  }

  open({ id, created, model, organizationId, headers }: AnswerHead): void {
    this.#events.begin({
      ...this.#options.headers,
      ...headers,
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    });
    const common = { id, object: "chat.completion.chunk", created, model, organization_id: organizationId };
    this.#prefix = `data: ${JSON.stringify(common).slice(0, -1)},"choices":[`;
    this.#beforeContent = `${this.#prefix}{"index":0,"delta":{"content":`;
    this.#afterContent = `},"finish_reason":null}${this.#suffix}`;
    this.#aroundContentBytes = Buffer.byteLength(this.#beforeContent + this.#afterContent);
    // Without content, because only text has content, and tool calls or a refusal may follow.
    this.#addChoice({ role: "assistant" }, null);
    this.#events.flush();
    // A destroyed response emits no further close event that would end the interval.
    if (this.#response.destroyed) return;
    this.#keepAlive = setInterval(() => {
      this.#events.add(": keep-alive\n\n");
      this.#events.flush();
    }, KEEP_ALIVE_MS);
    this.#response.once("close", () => clearInterval(this.#keepAlive));
  }

  push(chunks: readonly AnswerPiece[]): Promise<void> | undefined {
    for (const { delta, logprobs, finish_reason: reason } of chunks) {
      if (reason !== undefined) this.#isFinished = true;
      const content = delta === undefined || logprobs !== undefined ? undefined : onlyContentOf(delta);
      if (content !== undefined) this.#addContent(content);
      else this.#addDelta(delta, logprobs);
    }
    if (this.#isFinished) this.#events.flushWithEnd();
    else this.#events.flush();
    this.#keepAlive?.refresh();
    return this.#response.writableNeedDrain ? this.#drained() : undefined;
  }

  close({ finishReason, usage }: AnswerEnd): void {
    clearInterval(this.#keepAlive);
    // An empty answer has empty content, as in a response that is not streamed.
    if (!this.#hasContent) this.#addContent("");
    if (this.#options.includeUsage) {
      this.#addChoice({}, finishReason);
      this.#events.add(`${this.#prefix}],"usage":${JSON.stringify(usage)}}\n\n`);
    } else {
      this.#events.add(`${this.#prefix}${choiceOf({}, finishReason)}],"usage":${JSON.stringify(usage)}}\n\n`);
    }
    this.#events.add("data: [DONE]\n\n");
    this.#events.end();
  }

  fail(error: ApiError): void {
    this.#options.onFailed?.(error);
    clearInterval(this.#keepAlive);
    this.#events.add(`data: ${JSON.stringify(error.toEnvelope())}\n\n`);
    this.#events.end();
  }

  #addContent(content: string): void {
    this.#hasContent = true;
    const text = JSON.stringify(content);
    const byteLength = this.#aroundContentBytes + Buffer.byteLength(text);
    this.#events.add(this.#beforeContent + text + this.#afterContent, byteLength);
  }

  #addDelta(delta: Delta | undefined, logprobs: unknown): void {
    const sent = delta === undefined ? undefined : withoutRole(delta);
    if (sent === undefined && (logprobs === undefined || logprobs === null)) return;
    if (sent?.content || sent?.refusal || sent?.tool_calls) this.#hasContent = true;
    this.#addChoice(sent ?? {}, null, logprobs);
  }

  #addChoice(delta: Delta, finishReason: string | null, logprobs?: unknown): void {
    this.#events.add(`${this.#prefix}${choiceOf(delta, finishReason, logprobs)}${this.#suffix}`);
  }

  get #suffix(): string {
    return this.#options.includeUsage ? '],"usage":null}\n\n' : "]}\n\n";
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const settled = () => {
        clearTimeout(timer);
        this.#response.off("drain", settled);
        this.#response.off("close", settled);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#options.onStalled();
        settled();
      }, this.#options.slowClientMs ?? SLOW_CLIENT_MS);
      this.#response.on("drain", settled);
      this.#response.on("close", settled);
    });
  }
}

function choiceOf(delta: Delta, finishReason: string | null, logprobs?: unknown): string {
  const logprobsField = logprobs === undefined || logprobs === null ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
  const reason = finishReason === null ? "null" : `"${finishReason}"`;
  return `{"index":0,"delta":${JSON.stringify(delta)}${logprobsField},"finish_reason":${reason}}`;
}

/** Returns the content of a delta with no other field, else undefined. */
function onlyContentOf(delta: Delta): string | undefined {
  for (const field in delta) if (field !== "content") return undefined;
  return delta.content || undefined;
}

/**
 * Removes from a delta the role, which was sent when the stream opened, and empty content, which would turn the `null` of
 * a tool call or a refusal into an empty text. Returns undefined when nothing is left.
 */
function withoutRole({ role: _sent, content, ...rest }: Delta): Delta | undefined {
  if (!content && !rest.reasoning_content && !rest.refusal && rest.tool_calls === undefined) return undefined;
  return content ? { content, ...rest } : rest;
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
  #pendingBytes = 0;
  #turnEnd: NodeJS.Immediate | undefined;
  #endTimer: NodeJS.Timeout | undefined;
  readonly #send = () => {
    this.#unschedule();
    if (this.#pending === "") return;
    const { text, encoding } = this.#take("");
    this.#response.write(text, encoding);
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

  /**
   * Adds an event to the pending text: whole lines with the empty line at its end. A caller that knows the length in
   * bytes avoids the cost of computing it.
   */
  add(event: string, byteLength: number = Buffer.byteLength(event)): void {
    this.#pending += event;
    this.#pendingBytes += byteLength;
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
    const byteLength = this.#pendingBytes;
    this.#pending = "";
    this.#pendingBytes = 0;
    // ASCII text is written faster with this encoding.
    const encoding = byteLength === pending.length ? "latin1" : "utf8";
    if (!this.#isChunked) return { text: pending, encoding };
    const chunk = byteLength === 0 ? "" : `${byteLength.toString(16)}\r\n${pending}\r\n`;
    return { text: chunk + end, encoding };
  }
}
