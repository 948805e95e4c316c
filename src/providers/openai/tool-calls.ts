import type { ToolCallDelta } from "../../api/chat/completion.ts";
import { isObject, type JsonObject, textOf } from "../../api/json.ts";
import { JsonScanner } from "../../api/json-scanner.ts";

interface OpenCall {
  /** Position among the answer's calls. */
  index: number;
  /** The upstream's index; undefined if it sent none. */
  givenIndex: number | undefined;
  /** The upstream's id; undefined if it sent none. */
  id: string | undefined;
  name: string;
  hasArguments: boolean;
  /** Has scanned the arguments so far. */
  scanner: JsonScanner;
}

/**
 * Reads the tool calls of one answer and assigns their pieces to calls. Upstreams leave out the index, the id, or both,
 * send the same index for every call, or repeat the name in every piece. An id that is empty, null or absent counts as
 * missing; the gateway generates one.
 */
export class ToolCallReader {
  count = 0;
  readonly #byIndex = new Map<number, OpenCall>();
  readonly #byId = new Map<string, OpenCall>();
  #last: OpenCall | undefined;

  readWhole(calls: readonly unknown[]): ToolCallDelta[] {
    return calls.filter(isObject).map((call) => this.#read(call, this.#begin(call)));
  }

  readPieces(calls: readonly unknown[]): ToolCallDelta[] {
    return calls.filter(isObject).map((call) => {
      const open = this.#openCallOf(call);
      if (open === undefined || this.#beginsAnother(call, open)) return this.#read(call, this.#begin(call));
      return this.#read(call, open);
    });
  }

  /** Returns the call that a piece would continue: the one with its id and index, else with its index, else the last. */
  #openCallOf(call: JsonObject): OpenCall | undefined {
    const given = indexOf(call);
    const id = idOf(call);
    const named = id === undefined ? undefined : this.#byId.get(id);
    if (named !== undefined && (given === undefined || given === named.givenIndex)) return named;
    if (given !== undefined) return this.#byIndex.get(given);
    return id === undefined ? this.#last : undefined;
  }

  #beginsAnother(call: JsonObject, open: OpenCall): boolean {
    const id = idOf(call);
    if (id !== undefined && open.id !== undefined) return id !== open.id;
    const name = textOf(calledOf(call)?.name) ?? "";
    if (name === "" || open.name === "") return false;
    // Some upstreams repeat the name with every piece of the arguments.
    if (name === open.name && open.scanner.isWithin) return false;
    // A name may arrive in pieces. For a call without an id, a name is the only sign of its beginning.
    const isPieceOfName = open.id !== undefined && !open.hasArguments;
    return !isPieceOfName;
  }

  #begin(call: JsonObject): OpenCall {
    const givenIndex = indexOf(call);
    const begun: OpenCall = {
      index: this.count,
      givenIndex,
      id: undefined,
      name: "",
      hasArguments: false,
      scanner: new JsonScanner(),
    };
    this.count += 1;
    if (givenIndex !== undefined) this.#byIndex.set(givenIndex, begun);
    return begun;
  }

  #read(call: JsonObject, open: OpenCall): ToolCallDelta {
    const delta: ToolCallDelta = { index: open.index };
    this.#last = open;
    const id = idOf(call);
    if (id !== undefined) {
      open.id ??= id;
      this.#byId.set(id, open);
      delta.id = id;
      delta.type = "function";
    }
    if (isObject(call.custom)) delta.isCustom = true;
    const called = functionOf(call, open);
    if (called !== undefined) delta.function = called;
    if (call.extra_content !== undefined) delta.extra_content = call.extra_content;
    return delta;
  }
}

/** Returns the name and the arguments of a piece, without a name that only repeats the call's. */
function functionOf(call: JsonObject, open: OpenCall): ToolCallDelta["function"] {
  const sent = calledOf(call);
  if (sent === undefined) return undefined;
  const called: NonNullable<ToolCallDelta["function"]> = {};
  const { name, arguments: given } = sent;
  if (typeof name === "string" && name !== open.name) {
    called.name = name;
    open.name += name;
  }
  const text = isObject(given) ? JSON.stringify(given) : textOf(given);
  if (text !== undefined) {
    called.arguments = text;
    open.hasArguments ||= text !== "";
    open.scanner.scan(Buffer.from(text));
  }
  return called;
}

function indexOf({ index }: JsonObject): number | undefined {
  return typeof index === "number" && Number.isInteger(index) && index >= 0 ? index : undefined;
}

function idOf({ id }: JsonObject): string | undefined {
  return id === "" ? undefined : textOf(id);
}

/** Returns the function that a call names; a custom tool's input counts as the arguments. */
function calledOf({ function: called, custom }: JsonObject): JsonObject | undefined {
  if (isObject(called)) return called;
  return isObject(custom) ? { name: custom.name, arguments: custom.input } : undefined;
}
