import { head } from "../support/wire.ts";
import type { WireFixture } from "../wires/fixture.ts";
import { eventFrame, framed, TYPES } from "../wires/scripted-server.ts";
import { type Script, sends } from "./scripts.ts";

/** Takes and gives JSON, each byte a character. */
type Change = (json: string) => string;

/** An answer in a wire's own words, from its fixture, as bytes that can be cut and bent. */
export class Words {
  readonly isFramed: boolean;
  readonly type: string;
  readonly head: string;
  /** The answer without streaming. */
  readonly whole: string;
  /** The events before the first word, the one that says it, and those after it. */
  readonly begin: Buffer;
  readonly first: Buffer;
  readonly rest: Buffer;
  /** The mark of the end, where there is one. */
  readonly end: string | undefined;
  readonly #fixture: WireFixture;
  readonly #firstEvent: unknown;

  constructor(fixture: WireFixture) {
    const { framing, end, text } = fixture;
    const at = text.events.findIndex((event) => JSON.stringify(event).includes('"Hello "'));
    this.#fixture = fixture;
    this.#firstEvent = text.events[at];
    this.isFramed = framing === "frames";
    this.type = TYPES[framing];
    this.head = head(200, { "content-type": this.type });
    this.whole = JSON.stringify(text.whole);
    this.begin = this.events(text.events.slice(0, at));
    this.first = this.events([this.#firstEvent]);
    this.rest = this.events(text.events.slice(at + 1));
    this.end = end;
  }

  /** All events and the mark of the end. */
  get body(): Buffer {
    return joined(this.begin, this.first, this.rest, this.end ?? "");
  }

  events(events: readonly unknown[]): Buffer {
    return Buffer.concat(events.map((event) => framed(this.#fixture.framing, event)));
  }

  /** All of a stream, with its JSON changed. */
  changed(change: Change): Buffer {
    const events = this.#fixture.text.events.map((event) => this.#changed(event, change));
    return joined(...events, this.end ?? "");
  }

  /** The event of the first word, with its JSON changed. */
  changedFirst(change: Change): Buffer {
    return this.#changed(this.#firstEvent, change);
  }

  #changed(event: unknown, change: Change): Buffer {
    const { framing } = this.#fixture;
    const [[type, payload] = ["", {}]] = Object.entries(this.isFramed ? (event as object) : { event });
    const json = change(Buffer.from(JSON.stringify(payload)).toString("latin1"));
    if (this.isFramed) return eventFrame(type, Buffer.from(json, "latin1"));
    const name = framing === "named" ? `event: ${(event as { type: string }).type}\n` : "";
    return Buffer.from(`${name}data: ${json}\n\n`, "latin1");
  }

  /** Sends a stream with a body that ends with its connection. */
  streams(...parts: (Buffer | string)[]): Script {
    return sends(this.head, ...parts);
  }
}

export function joined(...parts: (Buffer | string)[]): Buffer {
  return Buffer.concat(parts.map((part) => Buffer.from(part)));
}
