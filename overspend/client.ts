import { Agent, type ClientRequest, type IncomingMessage, request as sendHttp } from "node:http";
import { request as sendHttps } from "node:https";
import { countWords } from "./script.ts";

/** A completion that the benchmark asks for. */
export interface CompletionCall {
  url: URL;
  key: string;
  /** Body of the request, the same for each attempt of an intent. */
  body: object;
  streamed: boolean;
  /** Number of the attempt, from 0: SDKs send it as `x-stainless-retry-count`. */
  retryCount: number;
  /** Words after which the client disconnects. */
  leavesAfterWords?: number | undefined;
  /** Resolves when the client is to disconnect. */
  leavesWhen?: Promise<unknown> | undefined;
}

/** An answer as the client received it. */
export interface Received {
  status: number | undefined;
  words: number;
  /** Bytes of the text that was received. */
  bytes: number;
  /** True if the answer arrived whole: with `[DONE]` if streamed. */
  isComplete: boolean;
  /** True if the client disconnected, by plan or after the timeout. */
  hasLeft: boolean;
  /** Error code of the gateway. */
  error: string | undefined;
}

const TIMEOUT_MS = 30_000;
const TEXT_BYTES_MAX = 16 * 1024 * 1024;

/** Sends completions, each on its own connection. Never rejects: whatever happens is what the client received. */
export class Client {
  readonly #options = { keepAlive: false, maxSockets: Number.POSITIVE_INFINITY };
  readonly #agent = new Agent(this.#options);

  send(call: CompletionCall): Promise<Received> {
    const received: Received = {
      ...{ status: undefined, words: 0, bytes: 0, isComplete: false, hasLeft: false, error: undefined },
    };
    const isSecure = call.url.protocol === "https:";
    const outgoing = (isSecure ? sendHttps : sendHttp)(call.url, {
      method: "POST",
      ...(!isSecure && { agent: this.#agent }),
      headers: {
        authorization: `Bearer ${call.key}`,
        "content-type": "application/json",
        "x-stainless-retry-count": String(call.retryCount),
      },
    });
    outgoing.end(JSON.stringify(call.body));
    return follow(outgoing, call, received);
  }
}

function follow(outgoing: ClientRequest, call: CompletionCall, received: Received): Promise<Received> {
  return new Promise((resolve) => {
    let isOver = false;
    const end = () => {
      isOver = true;
      clearTimeout(timer);
      // A copy, because events of the connection may still follow.
      resolve({ ...received });
    };
    const leave = () => {
      if (isOver) return;
      if (!received.isComplete) received.hasLeft = true;
      outgoing.destroy();
      end();
    };
    const timer = setTimeout(leave, TIMEOUT_MS);
    call.leavesWhen?.then(leave, leave);
    outgoing.on("error", end);
    outgoing.on("close", end);
    outgoing.on("response", (incoming) => {
      received.status = incoming.statusCode;
      const isStream = incoming.headers["content-type"]?.startsWith("text/event-stream") === true;
      (isStream ? readStream(incoming, call, received, leave) : readDocument(incoming, received)).then(end, end);
    });
  });
}

interface Answer {
  error?: { code?: unknown; message?: unknown } | string;
  choices?: { delta?: { content?: unknown }; message?: { content?: unknown } }[];
}

async function readStream(incoming: IncomingMessage, call: CompletionCall, received: Received, leave: () => void) {
  let rest = "";
  let text = "";
  incoming.setEncoding("utf8");
  for await (const part of incoming) {
    const events = (rest + part).split(/\r?\n\r?\n/);
    rest = events.pop() ?? "";
    for (const event of events) {
      // Nothing counts once the client has left: it would not have read it.
      if (received.hasLeft) return;
      const data = /^data: ?(.*)$/m.exec(event)?.[1];
      if (data === undefined) continue;
      if (data === "[DONE]") received.isComplete = received.error === undefined;
      else text += textIn(JSON.parse(data) as Answer, received);
      received.words = countWords(text);
      received.bytes = Buffer.byteLength(text);
      if (received.bytes > TEXT_BYTES_MAX || received.words >= (call.leavesAfterWords ?? Number.POSITIVE_INFINITY))
        leave();
    }
  }
}

async function readDocument(incoming: IncomingMessage, received: Received): Promise<void> {
  let document = "";
  incoming.setEncoding("utf8");
  for await (const part of incoming) {
    document += part;
    if (document.length > TEXT_BYTES_MAX) throw new Error("The gateway sent more than 16 MiB");
  }
  if (received.hasLeft) return;
  const answer = JSON.parse(document) as Answer;
  const text = textIn(answer, received);
  if (received.status !== 200 || received.error !== undefined) return;
  received.words = countWords(text);
  received.bytes = Buffer.byteLength(text);
  received.isComplete = answer.choices?.[0]?.message !== undefined;
}

function textIn({ error, choices }: Answer, received: Received): string {
  if (error !== undefined && error !== null) {
    received.error = typeof error === "string" ? error : String(error.code ?? error.message ?? "error");
  }
  const content = choices?.[0]?.delta?.content ?? choices?.[0]?.message?.content;
  return typeof content === "string" ? content : "";
}
