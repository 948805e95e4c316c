import type { IncomingHttpHeaders } from "node:http";
import { Agent, type Dispatcher, EnvHttpProxyAgent, errors, Pool } from "undici";
import { detailsOf } from "../../api/json.ts";
import { UpstreamError, type UpstreamFailure } from "../provider.ts";
import type { Environment, ProviderTimeouts } from "../settings.ts";

/** Hosts of this machine, to which no proxy leads. */
const LOOPBACK = "localhost,127.0.0.1,[::1]";
/** All addresses of its loopback network, which a list of hosts cannot name. */
const LOOPBACK_NETWORK = /^127(\.\d+){3}$/;

/**
 * Creates the connections to one origin, or without `origin` to any: kept alive, as many as there are concurrent requests,
 * each with one request at a time. They use the proxy that HTTPS_PROXY or HTTP_PROXY names, unless NO_PROXY lists the host
 * or it is a loopback address. Variables in lower case take precedence, as in curl. A socket reads up to 128 KiB ahead of
 * its reader; without `readsAhead` it reads nothing ahead, and each read costs about a microsecond more.
 */
export function createDispatcher(
  timeouts: ProviderTimeouts,
  environment: Environment,
  { origin, readsAhead = true }: { origin?: string; readsAhead?: boolean },
): Dispatcher {
  const options = {
    ...(!readsAhead && { connect: WITHOUT_READING_AHEAD, proxyTls: WITHOUT_READING_AHEAD }),
    connectTimeout: timeouts.connectMs,
    headersTimeout: timeouts.firstByteMs,
    bodyTimeout: timeouts.idleMs,
    pipelining: 1,
    // Each request has its own connection, so that aborting one does not affect another.
    allowH2: false,
  };
  const httpProxy = environment.http_proxy || environment.HTTP_PROXY || "";
  const httpsProxy = environment.https_proxy || environment.HTTPS_PROXY || "";
  const isLocal = origin !== undefined && LOOPBACK_NETWORK.test(new URL(origin).hostname);
  if (isLocal || (httpProxy === "" && httpsProxy === "")) {
    return origin === undefined ? new Agent(options) : new Pool(origin, options);
  }
  return new EnvHttpProxyAgent({
    ...options,
    httpProxy,
    httpsProxy,
    noProxy: `${LOOPBACK},${environment.no_proxy || environment.NO_PROXY || ""}`,
    // A proxy that accepts a connection but does not open the tunnel in time counts as unreachable.
    clientFactory: (proxy, proxyOptions) => new Pool(proxy, { ...proxyOptions, headersTimeout: timeouts.connectMs }),
  });
}

/** A stream option that undici passes on to the socket. undici's types do not have it. */
const WITHOUT_READING_AHEAD: object = { highWaterMark: 0 };

/** Unread bytes at which the connection is paused, in addition to the socket's own buffers. */
const WAITING_BYTES_MAX = 32 * 1024;
/** Bytes that are still read after `finish`, so that the connection can be reused. */
const REMAINDER_BYTES_MAX = 64 * 1024;
const REMAINDER_TIME_MS = 1_000;
/** Limit of interim answers, such as 103 Early Hints, before the final one. */
const INTERIM_ANSWERS_MAX = 8;
const NO_FINAL_ANSWER = "The upstream sent interim answers and no final one";

export interface HttpAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: HttpBody;
}

/** An answer's body, for one reader. Unread bytes stay in the connection. */
export type HttpBody = Pick<Exchange, "read" | "finish" | "destroy">;

/**
 * Sends a request and resolves with the answer's headers and body, also if the status is an error; redirects are not
 * followed. Rejects with UpstreamError, or with the signal's reason, which it throws if the signal is aborted already. One
 * object serves as undici's handler and as the body, so that an answer needs no stream, and only the promises that its
 * reader waits for.
 */
export function exchange(dispatcher: Dispatcher, options: Dispatcher.DispatchOptions, signal: AbortSignal) {
  signal.throwIfAborted();
  const head = Promise.withResolvers<HttpAnswer>();
  dispatcher.dispatch(options, new Exchange(signal, head));
  return head.promise;
}

class Exchange implements Dispatcher.DispatchHandler {
  readonly #signal: AbortSignal;
  /** Promise of the answer's headers; undefined once it is settled, so that it can be collected. */
  #head: PromiseWithResolvers<HttpAnswer> | undefined;
  readonly #abort: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #state: "waiting" | "answering" | "complete" | "broken" = "waiting";
  #failure: unknown;
  #interimAnswers = 0;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #remainderTimer: NodeJS.Timeout | undefined;
  #reader: PromiseWithResolvers<Buffer[] | undefined> | undefined;

  constructor(signal: AbortSignal, head: PromiseWithResolvers<HttpAnswer>) {
    this.#signal = signal;
    this.#head = head;
    this.#abort = () => {
      this.#discard();
      this.#break(signal.reason);
    };
    signal.addEventListener("abort", this.#abort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#state === "broken") this.#close();
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    // The raw headers would keep the whole read buffer in memory until the answer ends.
    controller.rawHeaders = null;
    if (status < 200) {
      // Each one restarts undici's timeout.
      this.#interimAnswers += 1;
      if (this.#interimAnswers > INTERIM_ANSWERS_MAX) this.#break(new UpstreamError("malformed", NO_FINAL_ANSWER));
      return;
    }
    this.#state = "answering";
    this.#head?.resolve({ status, headers, body: this });
    this.#head = undefined;
  }

  onResponseData(controller: Dispatcher.DispatchController, bytes: Buffer): void {
    this.#waitingBytes += bytes.length;
    if (this.#remainderTimer !== undefined) {
      if (this.#waitingBytes > REMAINDER_BYTES_MAX) this.destroy();
      return;
    }
    this.#waiting.push(bytes);
    if (this.#waitingBytes > WAITING_BYTES_MAX) controller.pause();
    // A microtask runs after all pieces of this socket read, so that the reader wakes once for many small pieces.
    if (this.#reader !== undefined) queueMicrotask(this.#wake);
  }

  onResponseEnd(): void {
    if (this.#state === "broken") return;
    this.#state = "complete";
    clearTimeout(this.#remainderTimer);
    this.#signal.removeEventListener("abort", this.#abort);
    this.#wake();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#break(connectionFailure(error, this.#state === "answering"));
  }

  /** Returns the bytes since the last read; undefined at the end. Rejects if the connection breaks or is aborted. */
  read(): Promise<Buffer[] | undefined> {
    const reader = Promise.withResolvers<Buffer[] | undefined>();
    this.#reader = reader;
    this.#wake();
    // Resumes only for a waiting reader, so that bytes read ahead stay bounded.
    if (this.#reader !== undefined) this.#controller?.resume();
    return reader.promise;
  }

  /** Ends reading, but lets a short remainder of the answer arrive, so that the connection can be reused. */
  finish(): void {
    if (this.#state !== "answering" || this.#remainderTimer !== undefined) return;
    this.#discard();
    // The answer is complete for the caller, so a caller that disconnects must not close the connection.
    this.#signal.removeEventListener("abort", this.#abort);
    this.#remainderTimer = setTimeout(() => this.destroy(), REMAINDER_TIME_MS).unref();
    this.#controller?.resume();
  }

  /** Closes the connection at once, unless the answer is complete. */
  destroy(): void {
    if (this.#state === "complete" || this.#state === "broken") return;
    this.#discard();
    this.#break(new UpstreamError("failed", "The answer was abandoned"));
  }

  #discard(): void {
    this.#waiting = [];
    this.#waitingBytes = 0;
  }

  #break(failure: unknown): void {
    if (this.#state === "complete" || this.#state === "broken") return;
    this.#state = "broken";
    this.#failure = failure;
    clearTimeout(this.#remainderTimer);
    this.#signal.removeEventListener("abort", this.#abort);
    this.#head?.reject(failure);
    this.#close();
    this.#wake();
  }

  #close(): void {
    if (this.#controller?.aborted === false) this.#controller.abort(new Error("The exchange has ended"));
  }

  /** Gives the waiting reader the bytes that have arrived, then the end or the failure. */
  readonly #wake = (): void => {
    const reader = this.#reader;
    if (reader === undefined) return;
    if (this.#waiting.length > 0) {
      this.#reader = undefined;
      reader.resolve(this.#waiting);
      this.#discard();
    } else if (this.#state === "complete") {
      this.#reader = undefined;
      reader.resolve(undefined);
    } else if (this.#state === "broken") {
      this.#reader = undefined;
      reader.reject(this.#failure);
    }
  };
}

const TIMEOUTS = new Set(["UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "ETIMEDOUT"]);

/**
 * Converts a failure of the connection to an UpstreamError: `timeout`; `malformed` if the answer is not HTTP; otherwise
 * `unavailable` before the answer's headers and `failed` after them.
 */
function connectionFailure(error: unknown, hasHeaders: boolean): UpstreamError {
  if (error instanceof UpstreamError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new UpstreamError(kindOf(error, hasHeaders), `The connection to the upstream failed: ${message}`, {
    cause: error,
  });
}

function kindOf(error: unknown, hasHeaders: boolean): UpstreamFailure {
  // The parser also reports a connection that ends within an answer, which is a reset.
  const isNotHttp = error instanceof errors.HTTPParserError && !/\bEOF\b/i.test(error.message);
  if (TIMEOUTS.has(String(detailsOf(error).code))) return "timeout";
  if (error instanceof errors.HeadersOverflowError || isNotHttp) return "malformed";
  return hasHeaders ? "failed" : "unavailable";
}
