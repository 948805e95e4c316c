import { StringDecoder } from "node:string_decoder";

/** Characters that one event's data, or one line, may have at most: 256 KiB where each takes two bytes. */
export const EVENT_LENGTH_MAX = 128 * 1024;

const BYTE_ORDER_MARK = "\uFEFF";
const FIELD = "data";

/** An event, or a line, is longer than it may be. */
export class EventTooLongError extends Error {
  constructor() {
    super(`An event is longer than ${EVENT_LENGTH_MAX} characters`);
    this.name = "EventTooLongError";
  }
}

/**
 * Reads a stream of server-sent events piece by piece, however it was split, and gives the data of each event; the
 * rules are those of the WHATWG HTML standard, section 9.2.6, "Interpreting an event stream". Names, ids and retry
 * times are not kept, and an event without data is not given: nobody here has a use for them.
 */
export class EventStreamReader {
  readonly #decoder = new StringDecoder("utf8");
  #isStarted = false;
  /** The last piece ended in CR: a line feed at the start of the next belongs to it. */
  #isAfterCarriageReturn = false;
  /** The unfinished line, joined only when it is complete. */
  #line = "";
  /** Data of the unfinished event; undefined while it has none. */
  #data: string | undefined;

  /** Takes the next bytes and appends the data of each event that they complete. Throws EventTooLongError. */
  push(bytes: Buffer, events: string[]): void {
    let text = this.#decoder.write(bytes);
    if (text === "") return;
    if (!this.#isStarted) {
      this.#isStarted = true;
      if (text.startsWith(BYTE_ORDER_MARK)) text = text.slice(1);
    }
    this.#readLines(text, events);
    if (this.#line.length > EVENT_LENGTH_MAX) throw new EventTooLongError();
  }

  #readLines(text: string, events: string[]): void {
    let start = 0;
    if (this.#isAfterCarriageReturn && text !== "") {
      this.#isAfterCarriageReturn = false;
      if (text.startsWith("\n")) start = 1;
    }
    // Each is looked for again only when it was passed, so that a text without one of them is searched once for it.
    let carriageReturn = text.indexOf("\r", start);
    let lineFeed = text.indexOf("\n", start);
    for (;;) {
      const isCarriageReturn = carriageReturn >= 0 && (lineFeed < 0 || carriageReturn < lineFeed);
      const end = isCarriageReturn ? carriageReturn : lineFeed;
      if (end < 0) break;
      this.#endLine(text, start, end, events);
      start = end + 1;
      if (isCarriageReturn) {
        if (start === text.length) this.#isAfterCarriageReturn = true;
        else if (lineFeed === start) start += 1;
        carriageReturn = text.indexOf("\r", start);
      }
      if (lineFeed >= 0 && lineFeed < start) lineFeed = text.indexOf("\n", start);
    }
    if (start < text.length) this.#line += start === 0 ? text : copied(text.slice(start));
  }

  #endLine(text: string, start: number, end: number, events: string[]): void {
    if (this.#line === "") {
      if (start === end) this.#endEvent(events);
      else this.#endField(text, start, end);
      return;
    }
    const line = start === end ? this.#line : this.#line + text.slice(start, end);
    this.#line = "";
    this.#endField(line, 0, line.length);
  }

  #endField(text: string, start: number, end: number): void {
    if (end - start > EVENT_LENGTH_MAX) throw new EventTooLongError();
    if (!text.startsWith(FIELD, start)) return;
    const colon = start + FIELD.length;
    if (colon < end && text[colon] !== ":") return;
    let from = colon + 1;
    if (text[from] === " ") from += 1;
    const value = from < end ? text.slice(from, end) : "";
    this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
    if (this.#data.length > EVENT_LENGTH_MAX) throw new EventTooLongError();
  }

  #endEvent(events: string[]): void {
    if (this.#data === undefined) return;
    if (this.#data !== "") events.push(this.#data);
    this.#data = undefined;
  }
}

/** A part of a text holds on to the whole of it: this is for parts that stay longer. */
export function copied(part: string): string {
  return Buffer.from(part, "utf16le").toString("utf16le");
}
