import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Delta } from "../api/completion.ts";
import type { ApiError } from "../errors.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "../gateway/answer.ts";
import { SLOW_CLIENT_MS } from "./connection.ts";
import { EventWriter } from "./event-writer.ts";

const KEEP_ALIVE_MS = 10_000;

export interface EventStreamOptions {
  response: ServerResponse;
  /** Headers of the answer beside those of the stream itself. */
  headers: OutgoingHttpHeaders;
  includeUsage: boolean;
  /** Called with the error that ends a stream which has begun. */
  onFailed?: (error: ApiError) => void;
  /** Called when the client reads too slowly to go on. */
  onStalled: () => void;
  /** How long a client may read nothing; a minute where it is not stated. */
  slowClientMs?: number;
}

/** Writes an answer as server-sent events, as OpenAI's clients read them. */
export class EventStreamSink implements AnswerSink {
  readonly streams = true;
  readonly #options: EventStreamOptions;
  readonly #response: ServerResponse;
  readonly #events: EventWriter;
  /** What every event begins with, before its choice. */
  #prefix = "";
  /** What stands around the content of an event that has nothing else to say: most are of this kind. */
  #beforeContent = "";
  #afterContent = "";
  #aroundContentBytes = 0;
  /** Whether any text, refusal or tool call was sent. */
  #hasSpoken = false;
  /** Whether the last words were said: what is to come is the usage and the end. */
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
    // Without content: whether text, tool calls or a refusal follow is not known yet, and only text has any.
    this.#addChoice({ role: "assistant" }, null);
    this.#events.flush();
    // A client that has left already closes nothing any more that could end the interval.
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
      const content = delta === undefined || logprobs !== undefined ? undefined : contentAlone(delta);
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
    // An answer that says nothing is an empty text, as it is where it is not streamed.
    if (!this.#hasSpoken) this.#addContent("");
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
    this.#hasSpoken = true;
    const text = JSON.stringify(content);
    const byteLength = this.#aroundContentBytes + Buffer.byteLength(text);
    this.#events.add(this.#beforeContent + text + this.#afterContent, byteLength);
  }

  #addDelta(delta: Delta | undefined, logprobs: unknown): void {
    const told = delta === undefined ? undefined : spokenIn(delta);
    if (told === undefined && (logprobs === undefined || logprobs === null)) return;
    if (told?.content || told?.refusal || told?.tool_calls) this.#hasSpoken = true;
    this.#addChoice(told ?? {}, null, logprobs);
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
  const told = logprobs === undefined || logprobs === null ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
  const reason = finishReason === null ? "null" : `"${finishReason}"`;
  return `{"index":0,"delta":${JSON.stringify(delta)}${told},"finish_reason":${reason}}`;
}

/** The content of a delta that says nothing else; undefined for any other, and where there is none. */
function contentAlone(delta: Delta): string | undefined {
  for (const field in delta) if (field !== "content") return undefined;
  return delta.content || undefined;
}

/**
 * Removes from a delta the role, which was sent when the stream opened, and empty content, which would turn the `null` of
 * a tool call or a refusal into an empty text. Returns undefined when nothing is left.
 */
function spokenIn({ role: _sent, content, ...rest }: Delta): Delta | undefined {
  if (!content && !rest.reasoning_content && !rest.refusal && rest.tool_calls === undefined) return undefined;
  return content ? { content, ...rest } : rest;
}
