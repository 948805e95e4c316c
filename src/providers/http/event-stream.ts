import { StringDecoder } from "node:string_decoder";
import { type AnswerRoom, UpstreamError } from "../provider.ts";
import { BODY_BYTES_MAX } from "./answer.ts";

/** Limit of the characters of one event's data, and of one line: that of the whole answer, because images come in one event. */
export const EVENT_LENGTH_MAX = BODY_BYTES_MAX;
/** Characters of an unfinished event for which no room is needed: at two bytes each, 256 KiB. */
export const LONG_EVENT_LENGTH = 128 * 1024;

const BYTE_ORDER_MARK = "\uFEFF";
const FIELD = "data";

/** Returns the failure of an answer with an event that exceeds a limit. */
export function eventTooLong(): UpstreamError {
  const text = `sent an event of more than ${EVENT_LENGTH_MAX} characters`;
  return new UpstreamError("malformed", `The upstream ${text}`, { publicReason: `The model's provider ${text}.` });
}

/** Holds room for a stream while an event of it is long, as for an answer that is read whole. */
export class EventRoom {
  readonly #room: AnswerRoom | undefined;
  #isHeld = false;

  constructor(room: AnswerRoom | undefined) {
    this.#room = room;
  }

  /**
   * Called before a read, with the length of the event that has begun. Waits for room if it is long, and gives the room back
   * once the event has been passed on.
   */
  fit(length: number): Promise<void> | undefined {
    const isLong = length > LONG_EVENT_LENGTH;
    if (isLong === this.#isHeld) return undefined;
    this.#isHeld = isLong;
    if (isLong) return this.#room?.reserve(BODY_BYTES_MAX);
    this.#room?.keep(0);
    return undefined;
  }
}

/**
 * Reads a stream of server-sent events in pieces of any size and returns the data of each event, by the rules of the
 * WHATWG HTML standard, section 9.2.6, "Interpreting an event stream". Names, ids, retry times and events without data are
 * dropped, because no upstream's answer depends on them.
 */
export class EventStreamReader {
  /** Undefined until a piece ends within a character, or may: most streams need none. */
  #decoder: StringDecoder | undefined;
  #isStarted = false;
  /** True if the last piece ended in CR. A line feed at the start of the next piece then belongs to it. */
  #isAfterCarriageReturn = false;
  /** The unfinished line, joined only when it is complete. */
  #line = "";
  /** Data of the unfinished event; undefined while it has none. */
  #data: string | undefined;

  /** Characters of the event that has begun. */
  get pendingLength(): number {
    return this.#line.length + (this.#data?.length ?? 0);
  }

  /** Reads the next bytes and appends the data of each event that they complete to `events`. Throws UpstreamError. */
  push(bytes: Buffer, events: string[]): void {
    let text = this.#decode(bytes);
    if (text === "") return;
    if (!this.#isStarted) {
      this.#isStarted = true;
      if (text.startsWith(BYTE_ORDER_MARK)) text = text.slice(1);
    }
    this.#readLines(text, events);
    if (this.#line.length > EVENT_LENGTH_MAX) throw eventTooLong();
  }

  #decode(bytes: Buffer): string {
    if (this.#decoder === undefined) {
      // A piece that ends in ASCII ends with a whole character.
      if ((bytes[bytes.length - 1] ?? 0) < 0x80) return bytes.toString("utf8");
      this.#decoder = new StringDecoder("utf8");
    }
    return this.#decoder.write(bytes);
  }

  #readLines(text: string, events: string[]): void {
    let start = 0;
    if (this.#isAfterCarriageReturn && text !== "") {
      this.#isAfterCarriageReturn = false;
      if (text.startsWith("\n")) start = 1;
    }
    // Each is searched again only once it has been passed, so that a text without one of them is searched once.
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
      if (start < end) this.#endField(text, start, end);
      else {
        if (this.#data) events.push(this.#data);
        this.#data = undefined;
      }
      return;
    }
    const line = start === end ? this.#line : this.#line + text.slice(start, end);
    this.#line = "";
    this.#endField(line, 0, line.length);
  }

  #endField(text: string, start: number, end: number): void {
    if (end - start > EVENT_LENGTH_MAX) throw eventTooLong();
    if (!text.startsWith(FIELD, start)) return;
    const colon = start + FIELD.length;
    if (colon < end && text[colon] !== ":") return;
    let from = colon + 1;
    if (text[from] === " ") from += 1;
    const value = from < end ? text.slice(from, end) : "";
    this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
    if (this.#data.length > EVENT_LENGTH_MAX) throw eventTooLong();
  }
}

/** Copies a part of a text. A slice keeps the whole text in memory, which matters if it is stored. */
export function copied(part: string): string {
  return Buffer.from(part, "utf16le").toString("utf16le");
}
