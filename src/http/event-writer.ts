import type { OutgoingHttpHeaders, ServerResponse } from "node:http";

/** As much as waits for the end of a turn: from here on a slow reader is noticed at once. */
const PENDING_CHARACTERS_MAX = 16 * 1024;
/** The last words wait no longer than this for what ends the answer. */
const END_AWAITED_MS = 25;

/**
 * Writes server-sent events: all that are at hand in one write to the socket, and in one chunk (RFC 9112, section 7.1).
 * Node's own chunking makes three buffers of every write, and a stream of small events then spends most of its time on
 * them; so the chunks are framed here, and Node is told to leave them as they are.
 */
export class EventWriter {
  readonly #response: ServerResponse;
  /** False for clients of HTTP/1.0, which know no chunks. */
  #isChunked = false;
  #pending = "";
  #pendingBytes = 0;
  #atEndOfTurn: NodeJS.Immediate | undefined;
  #atLast: NodeJS.Timeout | undefined;
  readonly #send = () => {
    this.#unschedule();
    if (this.#pending === "") return;
    const { text, encoding } = this.#take("");
    this.#response.write(text, encoding);
  };

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  /** Begins the answer. */
  begin(headers: OutgoingHttpHeaders): void {
    this.#response.writeHead(200, headers);
    this.#isChunked = this.#response.chunkedEncoding;
    this.#response.chunkedEncoding = false;
  }

  /**
   * Adds an event to what goes out next: whole lines, with the empty one that ends it. Who knows its length in bytes
   * spares a copy of it, which a look at every character makes.
   */
  add(event: string, byteLength: number = Buffer.byteLength(event)): void {
    this.#pending += event;
    this.#pendingBytes += byteLength;
  }

  /** Sends what was added, and what is added until the end of this turn of the event loop with it. */
  flush(): void {
    if (this.#pending.length > PENDING_CHARACTERS_MAX) this.#send();
    else this.#atEndOfTurn ??= setImmediate(this.#send);
  }

  /** The same for the last words: where the end of the answer is near, they go out with it. */
  flushWithEnd(): void {
    if (this.#pending.length > PENDING_CHARACTERS_MAX) {
      this.#send();
      return;
    }
    clearImmediate(this.#atEndOfTurn);
    this.#atEndOfTurn = undefined;
    this.#atLast ??= setTimeout(this.#send, END_AWAITED_MS);
  }

  /** Sends what was added, and ends the answer. */
  end(): void {
    this.#unschedule();
    const { text, encoding } = this.#take("0\r\n\r\n");
    this.#response.end(text, encoding);
  }

  #unschedule(): void {
    clearImmediate(this.#atEndOfTurn);
    clearTimeout(this.#atLast);
    this.#atEndOfTurn = undefined;
    this.#atLast = undefined;
  }

  /** What is pending as it goes out, with the chunk that ends the answer, where there are chunks and it is given. */
  #take(end: string): { text: string; encoding: "latin1" | "utf8" } {
    const pending = this.#pending;
    const byteLength = this.#pendingBytes;
    this.#pending = "";
    this.#pendingBytes = 0;
    // By this name text of one-byte characters is written as it is, without a look at each.
    const encoding = byteLength === pending.length ? "latin1" : "utf8";
    if (!this.#isChunked) return { text: pending, encoding };
    const chunk = byteLength === 0 ? "" : `${byteLength.toString(16)}\r\n${pending}\r\n`;
    return { text: chunk + end, encoding };
  }
}
