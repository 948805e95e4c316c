import { BULK_TOKEN } from "../../support/bulk.ts";
import { type FuzzBooks, type RequestRow, sumOf } from "./books.ts";
import { marksIn } from "./client.ts";
import type { Ask, Call, Intent } from "./intent.ts";
import { bookFaults, rowFaults } from "./judge-books.ts";
import { chargeFaults } from "./judge-charges.ts";
import type { Nodes } from "./nodes.ts";
import { bookedPrices } from "./prices.ts";

type Late = FuzzBooks["adjustments"][number];
/** Events of the services while requests ran. */
type Happened = Pick<Nodes, "kills" | "periods">;

/** The clocks of two processes of one machine, and the time that a request waits before it is admitted. */
const CLOCK_MS = 2_000;
/** A service that has just started on a busy machine reads a request long after its client has left. */
const LATE_MS = 30_000;

/**
 * Judges requests by the books that they left, and the books by themselves. Shares no code with the service: the SQL,
 * the arithmetic and the bounds are its own, and follow docs/charging.md and docs/ledger.md.
 */
export class Judge {
  readonly #books: FuzzBooks;
  readonly #happened: Happened;
  readonly #rows: Map<string, RequestRow[]>;
  readonly #late: Map<string, Late>;

  constructor(books: FuzzBooks, happened: Happened) {
    this.#books = books;
    this.#happened = happened;
    this.#rows = Map.groupBy(books.requests, ({ request_id }) => request_id);
    this.#late = new Map(
      books.adjustments.filter(({ kind }) => kind === "late_settlement").map((row) => [row.hold_id, row]),
    );
  }

  /** Returns all faults. `intents`: everything that was sent. */
  faults(intents: readonly Intent[]): string[] {
    const faults = bookFaults(this.#books);
    if (this.#books.holds.length > 0) faults.push(`${this.#books.holds.length} holds are still open`);
    const known = new Set([BULK_TOKEN]);
    for (const intent of intents) {
      for (const { requestId } of [...intent.calls, ...intent.asks]) if (requestId !== undefined) known.add(requestId);
      for (const fault of this.#intentFaults(intent)) faults.push(`${intent.id}: ${fault}; ${describe(intent)}`);
    }
    for (const row of this.#books.requests) {
      if (known.has(row.request_id) || row.token_id === BULK_TOKEN) continue;
      const own = [...rowFaults(row, this.#late.get(row.id)), ...this.#unknownFaults(intents, row)];
      faults.push(...own.map((fault) => `${row.id} (${row.ending}): ${fault}`));
    }
    return faults;
  }

  /**
   * Faults of a row whose id neither a client nor the upstream has: a service was killed before, or the client left
   * when the upstream was called. That call is gone, if it was closed before the upstream read it.
   */
  #unknownFaults(intents: readonly Intent[], row: RequestRow): string[] {
    if (this.#costOf(row) === 0n) return [];
    const madeAt = Number(row.made_at);
    const left = intents.filter(({ model, calls }) => {
      const mayBe = ({ end, requestId, tokenId, sentAt, endedAt }: Call) =>
        end === "left" &&
        requestId === undefined &&
        tokenId === row.token_id &&
        sentAt <= madeAt + CLOCK_MS &&
        endedAt >= madeAt - LATE_MS;
      return model === row.model && calls.some(mayBe);
    });
    const tokens = row.tokens.map(Number);
    const isDue = left.some((intent) => {
      const ask = {
        requestId: row.request_id,
        at: Number(row.ended_at),
        maxTokens: intent.maxTokens,
        written: 0,
        reports: [],
        hasFailed: false,
        isFinished: false,
      };
      return chargeFaults({ row, tokens, intent, call: undefined, ask }).length === 0;
    });
    return isDue ? [] : ["it was charged, and no client knows of it"];
  }

  #intentFaults(intent: Intent): string[] {
    const ids = new Set([...intent.calls, ...intent.asks].map(({ requestId }) => requestId));
    const rows = [...ids].flatMap((id) => this.#rows.get(id ?? "") ?? []);
    const ofRows = rows.flatMap((row) =>
      this.#rowFaults(intent, row).map((fault) => `${row.id} (${row.ending}): ${fault}`),
    );
    return [...ofRows, ...intent.calls.flatMap((call) => this.#callFaults(intent, call))];
  }

  #rowFaults(intent: Intent, row: RequestRow): string[] {
    const late = this.#late.get(row.id);
    const faults = rowFaults(row, late);
    const calls = intent.calls.filter(({ requestId }) => requestId === row.request_id);
    const ask = intent.asks.findLast(({ requestId }) => requestId === row.request_id);
    if ((this.#rows.get(row.request_id)?.length ?? 0) > 1) faults.push("two rows of one request");
    if (intent.maxCost !== null && row.amount > toMicro(intent.maxCost))
      faults.push(`${row.amount} were held above its bound`);
    const cost = this.#costOf(row);
    if (row.ending === "released") {
      if (cost !== 0n) faults.push(`it is released and cost ${cost}`);
      return faults;
    }
    if (ask === undefined) return cost === 0n ? faults : [...faults, `it cost ${cost}, and no upstream was asked`];
    const wire = intent.answer.wire;
    // A request has the prices of an instant between its sending and its hold, which a busy machine makes much later.
    const sentAt = Math.min(...(calls.length > 0 ? calls : intent.calls).map((call) => call.sentAt));
    const inForce = this.#happened.periods.filter(({ fromMs, toMs }) => {
      return fromMs <= Number(row.made_at) + CLOCK_MS && toMs >= sentAt;
    });
    const prices = inForce.map(({ variant }) => bookedPrices(variant, wire).join());
    if (!prices.includes(row.prices.join())) faults.push(`its prices ${row.prices} are none of ${prices.join(" / ")}`);
    const tokens = row.tokens.map((count, index) => Number(count + (late?.tokens[index] ?? 0n)));
    return [...faults, ...chargeFaults({ row, tokens, intent, call: calls[0], ask })];
  }

  #callFaults(intent: Intent, call: Call): string[] {
    const { end, status, requestId = "" } = call;
    if (end === undefined) return ["a client still waits"];
    const faults = [...answerFaults(intent, call), ...keyFaults(intent, call)];
    const foreign = [...marksIn(call.text)].filter((mark) => !mark.startsWith(`<${intent.id}.`));
    if (foreign.length > 0) faults.push(`it received ${foreign.length} texts of another request`);
    const wasKilled = this.#happened.kills.some(
      ({ node, at }) => node === call.node && at >= call.sentAt - CLOCK_MS && at <= call.endedAt + CLOCK_MS,
    );
    if (end === "cut" && !wasKilled) faults.push("its answer was cut off, and no service was killed");
    const own = this.#rows.get(requestId)?.[0];
    const asked = intent.asks.filter((ask) => ask.requestId === requestId);
    if (intent.inbound === "count_tokens")
      return own === undefined ? faults : [...faults, "a count of tokens is in the books"];
    const cost = own === undefined ? 0n : this.#costOf(own);
    if ((status ?? 200) >= 400 && cost !== 0n) faults.push(`an error cost ${cost}`);
    if (status !== 200) return faults;
    if (asked.length > 0) return [...faults, ...ownFaults(call, own, cost, wasKilled)];
    if (!isAnsweredBefore(intent, call)) faults.push(`${call.repetition}: it was answered without an upstream`);
    return [...faults, ...this.#replayFaults(intent, call)];
  }

  /** The answer of a repeated request is that of the first, which is charged. */
  #replayFaults(intent: Intent, call: Call): string[] {
    const rows = intent.asks.flatMap(({ requestId }) => this.#rows.get(requestId) ?? []);
    const cost = costIn(call);
    const charged = rows.filter((row) => row.ending !== "released" && this.#costOf(row) === cost);
    if (call.end !== "complete") return [];
    return charged.length === 0 ? [`a repeated answer says that it cost ${cost}, and none did`] : [];
  }

  #costOf(row: RequestRow): bigint {
    return sumOf([row.cost, this.#late.get(row.id)?.amount ?? 0n]);
  }
}

/** Faults of a call that an upstream was asked for and that was answered 200. */
function ownFaults(call: Call, row: RequestRow | undefined, cost: bigint, wasKilled: boolean): string[] {
  const received = marksIn(call.text).size;
  if (row === undefined) return ["an answer without a hold"];
  if (call.end === "complete") {
    if (row.ending === "released" || cost === 0n) return ["a complete answer is not charged"];
    const said = costIn(call);
    return said === cost ? [] : [`it says that it cost ${said}, and it cost ${cost}`];
  }
  return received > 0 && cost === 0n && !wasKilled ? [`${received} texts were delivered for nothing`] : [];
}

/** Calls with the same body, endpoint and token are repetitions of one another. */
function bodyOf({ repetition }: Call): string {
  return repetition === "same" ? "first" : repetition;
}

/** Tells whether an upstream answered a call that this one repeats. */
function isAnsweredBefore({ calls, asks }: Intent, call: Call): boolean {
  const others = new Set(calls.filter((other) => bodyOf(other) !== bodyOf(call)).map(({ requestId }) => requestId));
  // A client that left early does not know the id of its request.
  return asks.some(({ requestId }) => !others.has(requestId));
}

/** A key whose answer is complete gives it to each repetition, and refuses every other request. */
function keyFaults({ key, calls, asks, maxCost }: Intent, call: Call): string[] {
  const ids = new Set(asks.map(({ requestId }) => requestId));
  const first = calls.find((other) => {
    const hasRun = other.end === "complete" && ids.has(other.requestId ?? "") && other.endedAt < call.sentAt;
    return hasRun && (other.repetition === "sibling") === (call.repetition === "sibling");
  });
  if (key === null || first === undefined || call.status === undefined || call.status === 503) return [];
  // A request whose prices have risen above its bound is refused before its key is looked up.
  if (call.status === 400 && maxCost !== null) return [];
  const expected = bodyOf(first) === bodyOf(call) ? 200 : 422;
  return call.status === expected
    ? []
    : [`${call.repetition}: the key of a complete answer was answered ${call.status}`];
}

/** Answers that no client may get. */
function answerFaults(intent: Intent, { status, text, end, repetition, requestId }: Call): string[] {
  const { answer, account, maxCost, asks, key, inbound, calls } = intent;
  const fails = answer.ending !== "whole" || answer.failsFirst > 0;
  const wasRefused = !asks.some((one) => one.requestId === requestId);
  const isOther = repetition === "other endpoint";
  // A package reads these wires, which takes no piece that it does not know.
  const isStrict = answer.wire !== "chat" && answer.wire !== inbound;
  const allowed: Record<number, boolean> = {
    200: true,
    400: answer.ending === "refusal" || maxCost !== null || isOther,
    402: account.isPoor,
    409: key !== null,
    422: calls.some((call) => call.repetition.startsWith("other")),
    429: account.isPoor,
    // After failures in a row, a model is closed to an organization for a moment.
    502: fails || isOther || isStrict || wasRefused,
    503: fails || isOther || isStrict || wasRefused,
  };
  if (status !== undefined && allowed[status] !== true) return [`it was answered ${status} ${text.slice(0, 300)}`];
  if (text.includes("internal_error")) return [`an internal error: ${text.slice(-300)}`];
  const ask = asks.find((one) => one.requestId === requestId);
  if (ask?.isFinished !== true || fails || isOther || isStrict || inbound === "count_tokens") return [];
  return end === "error" ? [`a whole answer ended as ${status} ${text.slice(-300)}`] : [];
}

/** The charge that an answer states, in micro-credits. */
function costIn({ text }: Call): bigint {
  const stated = [...text.matchAll(/"cost":([\d.e-]+)/g)].at(-1)?.[1];
  return stated === undefined ? -1n : BigInt(Math.round(Number(stated) * 1e6));
}

function toMicro(credits: string): bigint {
  return BigInt(Math.round(Number(credits) * 1e6));
}

function describe({ inbound, model, isStreamed, maxTokens, answer, calls, asks }: Intent): string {
  const { ending, reports, finish, pieces } = answer;
  const ofCalls = calls.map(
    ({ repetition, status, end, text }) => `${repetition} ${status} ${end} ${marksIn(text).size} marks`,
  );
  const ofAsks = asks.map(
    ({ written, isFinished }: Ask) => `${written} of ${pieces.length}${isFinished ? ", finished" : ""}`,
  );
  const how = `${inbound} to ${model}${isStreamed ? ", streamed" : ""}, max_tokens ${maxTokens}`;
  const gave = `upstream ${ending}, ${finish}, usage ${reports.kind}, wrote ${ofAsks.join(" | ")}`;
  return `${how}; ${gave}; client ${ofCalls.join(" | ")}`;
}
