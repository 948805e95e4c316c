import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import { readErrorText } from "../http/body.ts";
import { createDispatcher } from "../http/dispatcher.ts";
import { exchange, type HttpAnswer, type HttpBody } from "../http/exchange.ts";
import { OWN_HEADERS } from "../http/own-headers.ts";
import { type Scrub, statusFailure } from "../openai/errors.ts";
import { UpstreamError } from "../provider.ts";
import type { Environment, ProviderTimeouts } from "../settings.ts";
import { boundsOf, PIECE_BYTES } from "./bounds.ts";
import type { Fetch } from "./wire.ts";

/** Connections of one provider, to each origin that its package talks to. */
export class Connections {
  readonly #dispatchers = new Map<string, Dispatcher>();
  readonly #timeouts: ProviderTimeouts;
  readonly #environment: Environment;

  constructor(timeouts: ProviderTimeouts, environment: Environment) {
    this.#timeouts = timeouts;
    this.#environment = environment;
  }

  async send(url: URL, init: RequestInit, headers: string[], signal: AbortSignal): Promise<HttpAnswer> {
    const { firstByteMs, idleMs } = this.#timeouts;
    return exchange(this.#dispatcherOf(url), url.origin, {
      method: init.method === "GET" ? "GET" : "POST",
      path: `${url.pathname}${url.search}`,
      headers,
      body: bodyOf(init.body),
      firstByteMs,
      idleMs,
      signal,
    });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#dispatchers.values()].map((dispatcher) => dispatcher.destroy()));
  }

  #dispatcherOf(url: URL): Dispatcher {
    const known = this.#dispatchers.get(url.origin);
    if (known !== undefined) return known;
    const dispatcher = createDispatcher(url, this.#timeouts, this.#environment, { readsAhead: false });
    this.#dispatchers.set(url.origin, dispatcher);
    return dispatcher;
  }
}

/**
 * The fetch of one call: it keeps the rules of `http/` (timeouts, proxies, no redirects, bounded answers, back-pressure),
 * fails with UpstreamError, and remembers the failure, because the packages wrap what they are thrown.
 */
export class CallFetch {
  failure: unknown;
  /** Tracks the reads of a streamed answer. The reader wraps each read in `demand.during`. */
  readonly demand = new Demand();
  readonly #connections: Connections;
  readonly #scrub: Scrub;
  readonly #signal: AbortSignal;
  readonly #closing: string | undefined;

  /** `closing` is what is put at the end of every stream of events. */
  constructor(connections: Connections, scrub: Scrub, signal: AbortSignal, closing?: string) {
    this.#connections = connections;
    this.#scrub = scrub;
    this.#signal = signal;
    this.#closing = closing;
  }

  readonly fetch: Fetch = async (address, init = {}) => {
    try {
      const answer = await this.#connections.send(new URL(String(address)), init, headersOf(init), this.#signal);
      await refuse(answer, this.#scrub);
      const { status, headers, body } = answer;
      return new Response(this.#stream(body, headers), { status, headers: { "content-type": mediaType(headers) } });
    } catch (error) {
      this.failure = error;
      throw error;
    }
  };

  /**
   * A break ends the stream as if it were complete: the packages' pipes would throw away what had come before it. The
   * failure is told once that has been read.
   */
  #stream(body: HttpBody, headers: IncomingHttpHeaders): ReadableStream<Uint8Array> {
    const type = mediaType(headers);
    const bounds = boundsOf(type, this.#scrub);
    const pieces: Uint8Array[] = [];
    let isOver = false;
    const read = async () => {
      try {
        while (pieces.length === 0 && !isOver) {
          const bytes = await body.read();
          for (const piece of bytes ?? []) bounds(piece, (whole) => pieces.push(whole));
          isOver = bytes === undefined;
        }
      } catch (error) {
        body.destroy();
        this.failure = error;
        isOver = true;
      }
    };
    const end = (controller: ReadableStreamDefaultController<Uint8Array>) => {
      if (type === EVENT_STREAM && this.#closing !== undefined) controller.enqueue(Buffer.from(this.#closing));
      controller.close();
    };
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          await this.demand.unmet();
          await read();
          if (pieces.length === 0) end(controller);
          for (let fedBytes = 0; fedBytes < PIECE_BYTES && pieces[0] !== undefined; pieces.shift()) {
            controller.enqueue(pieces[0]);
            fedBytes += pieces[0].length;
          }
        },
        cancel: () => body.destroy(),
      },
      { highWaterMark: 0 },
    );
  }
}

/**
 * Tracks whether the reader of an answer is waiting for more than the package has buffered. Each pipe of a package takes
 * and buffers a piece even while its reader is not reading, so the pipes are fed only while there is demand.
 */
export class Demand {
  /** True at first: some packages read the beginning of an answer before they return a stream. */
  #isThere = true;
  #arise = () => {};
  readonly #meet = <T>(value: T): T => {
    this.#isThere = false;
    return value;
  };

  /** Waits for a read from the package; there is demand until it resolves. Not async, because it runs for every part. */
  during<T>(read: Promise<T>): Promise<T> {
    this.#isThere = true;
    this.#arise();
    return read.then(this.#meet);
  }

  /** Resolves when there is demand that the pipes could not meet from their buffers within a turn of the event loop. */
  async unmet(): Promise<void> {
    do {
      await new Promise<void>((resolve) => {
        if (this.#isThere) setImmediate(resolve);
        else this.#arise = resolve;
      });
    } while (!this.#isThere);
  }
}

/** Rejects with the failure that an answer tells by its status or its kind. */
async function refuse({ status, headers, body }: HttpAnswer, scrub: Scrub): Promise<void> {
  if (status !== 200) throw statusFailure(status, headers, await readErrorText(body), scrub);
  const encoding = String(headers["content-encoding"] ?? "identity").toLowerCase();
  const type = mediaType(headers);
  if (encoding === "identity" && KNOWN_TYPES.has(type)) return;
  body.destroy();
  const what = encoding === "identity" ? `answered with the content type '${type.slice(0, 80)}'` : "encoded its answer";
  throw new UpstreamError("malformed", `The upstream ${what}`);
}

const EVENT_STREAM = "text/event-stream";
const KNOWN_TYPES = new Set(["", "application/json", EVENT_STREAM, "application/vnd.amazon.eventstream"]);

function mediaType(headers: IncomingHttpHeaders): string {
  const [type = ""] = (headers["content-type"] ?? "").split(";", 1);
  return type.trim().toLowerCase();
}

function headersOf({ headers = {} }: RequestInit): string[] {
  const given = [...new Headers(headers)].filter(([name]) => name !== "user-agent" && !OWN_HEADERS.test(name));
  return [...given.flat(), "accept-encoding", "identity", "user-agent", "tollgate"];
}

function bodyOf(body: RequestInit["body"]): string | null {
  if (body === undefined || body === null) return null;
  if (typeof body === "string" || body instanceof URLSearchParams) return String(body);
  throw new Error("A package sent a body that is no text");
}
