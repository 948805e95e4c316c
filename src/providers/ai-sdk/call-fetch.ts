import type { Dispatcher } from "undici";
import {
  accepted,
  BODY_BYTES_MAX,
  EVENT_STREAM,
  JSON_TYPE,
  LONG_BYTES,
  lengthOf,
  mediaTypeOf,
  unknownType,
} from "../http/answer.ts";
import { EventRoom } from "../http/event-stream.ts";
import { exchange, type HttpBody } from "../http/exchange.ts";
import { type AnswerRoom, UpstreamError } from "../provider.ts";
import { type Scrub, withoutHeaders } from "../scrub.ts";
import { OWN_HEADERS, type ProviderTimeouts } from "../settings.ts";
import { AMAZON_EVENT_STREAM, byteBoundsOf, PIECE_BYTES } from "./bounds.ts";
import type { Fetch } from "./wire.ts";

export interface CallSetup {
  dispatcher: Dispatcher;
  timeouts: ProviderTimeouts;
  scrub: Scrub;
}

interface CallFetchOptions {
  /** Headers that the package does not know; its own override them. */
  headers?: Readonly<Record<string, string>>;
  closing?: string | undefined;
  /** True for requests of an access token. All others are POST: some packages would fetch addresses that a prompt contains. */
  isOfToken?: boolean;
  room?: AnswerRoom | undefined;
  /** Answers that the call reads at once; 1 by default. */
  answersAtOnce?: number;
}

/**
 * The fetch function of one call. It applies the rules of `http/` (timeouts, proxies, no redirects, bounded answers,
 * back-pressure), rejects with UpstreamError, and records the failure, because the packages wrap it in errors of their own.
 */
export class CallFetch {
  /** The failure of the connection; undefined if it has not failed. */
  failure: unknown;
  /** Tracks the reads of a streamed answer. The reader wraps each read in `demand.during`. */
  readonly demand = new Demand();
  /** Aborts with the signal of the call, and when the call ends. */
  readonly signal: AbortSignal;
  /** Removes private text, and the credentials that were sent. */
  scrub: Scrub;
  readonly #setup: CallSetup;
  readonly #ended = new AbortController();
  readonly #options: CallFetchOptions;
  /** Resolves when there is room for the answers of the call; undefined while all of them are short. */
  #reserved: Promise<void> | undefined;
  #wholeBytes = 0;

  constructor(setup: CallSetup, signal: AbortSignal, options: CallFetchOptions = {}) {
    this.#setup = setup;
    this.scrub = setup.scrub;
    this.signal = AbortSignal.any([signal, this.#ended.signal]);
    this.#options = options;
  }

  /** Closes the connection, even if a package's pipes do not pass on a cancellation. */
  end(): void {
    this.#ended.abort();
  }

  keepRoom(): void {
    this.#options.room?.keep(this.#wholeBytes);
  }

  /** Waits for room once an answer that is read whole, or all of the call, are long. */
  async #reserve(type: string, bytes: number): Promise<void> {
    if (type === EVENT_STREAM || type === AMAZON_EVENT_STREAM) return;
    this.#wholeBytes += bytes;
    if (this.#wholeBytes <= LONG_BYTES) return;
    const { room, answersAtOnce = 1 } = this.#options;
    this.#reserved ??= room?.reserve(BODY_BYTES_MAX * answersAtOnce);
    await this.#reserved;
  }

  readonly fetch: Fetch = async (address, init = {}) => {
    try {
      if (init.method !== "POST" && this.#options.isOfToken !== true) {
        throw new UpstreamError("unsupported", "A package tried to fetch an address");
      }
      const { dispatcher, timeouts, scrub } = this.#setup;
      const headers = headersOf(init, this.#options.headers);
      this.scrub = withoutHeaders(scrub, headers);
      const { origin, pathname, search } = new URL(String(address));
      const sent = {
        origin,
        path: `${pathname}${search}`,
        method: init.method === "GET" ? "GET" : "POST",
        headers,
        body: bodyOf(init.body),
        headersTimeout: timeouts.firstByteMs,
        bodyTimeout: timeouts.idleMs,
      } as const;
      const answer = await exchange(dispatcher, sent, this.signal);
      await accepted(answer, this.scrub);
      const type = mediaTypeOf(answer.headers);
      if (!KNOWN_TYPES.has(type)) throw unknownType(answer);
      const { status, body } = answer;
      return new Response(this.#stream(body, type), { status, headers: { "content-type": type } });
    } catch (error) {
      this.failure = error;
      throw error;
    }
  };

  /** Returns the body as a stream. A break ends it as if it were whole: pipes would drop the data before an error. */
  #stream(body: HttpBody, type: string): ReadableStream<Uint8Array> {
    const bounds = byteBoundsOf(type, this.scrub);
    const pieces: Uint8Array[] = [];
    const room = new EventRoom(this.#options.room);
    let begunLength = 0;
    let isOver = false;
    const read = async () => {
      try {
        while (pieces.length === 0 && !isOver) {
          await room.fit(begunLength);
          const bytes = await body.read();
          for (const piece of bytes ?? []) begunLength = bounds(piece, (whole) => pieces.push(whole));
          isOver = bytes === undefined;
          await this.#reserve(type, lengthOf(bytes ?? []));
        }
      } catch (error) {
        body.destroy();
        this.failure = error;
        isOver = true;
      }
    };
    const end = (controller: ReadableStreamDefaultController<Uint8Array>) => {
      const { closing } = this.#options;
      if (type === EVENT_STREAM && closing !== undefined) controller.enqueue(Buffer.from(closing));
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

/** Tracks whether the reader waits, because the pipes of a package buffer pieces even while nobody reads. */
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

/** Media types that the packages read. An answer without a media type is left to the package. */
const KNOWN_TYPES = new Set(["", JSON_TYPE, EVENT_STREAM, AMAZON_EVENT_STREAM]);

function headersOf({ headers = {} }: RequestInit, further: Readonly<Record<string, string>> = {}): string[] {
  const all = new Headers(further);
  for (const [name, value] of new Headers(headers)) all.set(name, value);
  const given = [...all].filter(([name]) => name !== "user-agent" && !OWN_HEADERS.test(name));
  return [...given.flat(), "accept-encoding", "identity", "user-agent", "tollgate"];
}

function bodyOf(body: RequestInit["body"]): string | null {
  if (body === undefined || body === null) return null;
  if (typeof body === "string" || body instanceof URLSearchParams) return String(body);
  throw new Error("A package sent a body that is not text");
}
