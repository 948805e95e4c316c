import { isUtf8 } from "node:buffer";
import type { IncomingMessage } from "node:http";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { JSON_DEPTH_MAX, JSON_VALUES_MAX } from "../api/bounds.ts";
import { ApiError } from "../errors.ts";
import { ANONYMOUS, type BodyBudget, type BodyReservation } from "./body-budget.ts";
import { JsonScanner } from "./json-scanner.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The share of the request's body in the budget; null until the body is read. Released when the response is closed. */
    bodyReservation: BodyReservation | null;
  }
}

const ANONYMOUS_LIMIT_BYTES = 16 * 1024;
const ADMINISTRATOR_LIMIT_BYTES = 1024 * 1024;
const JSON_BOUNDS = { depth: JSON_DEPTH_MAX, values: JSON_VALUES_MAX };
const EMPTY = Buffer.alloc(0);
const FIRST_CAPACITY_BYTES = 4 * 1024;
/** A buffer that is full is replaced by one that is so many times as long as what it must hold. */
const GROWTH = 4;
/** Bodies above this size are parsed one in a turn of the event loop, so that other connections are served in between. */
const LARGE_BYTES = 32 * 1024;

interface BodyLimits {
  /** Largest body of an authenticated call of the API. */
  bodyLimitBytes: number;
  budget: BodyBudget;
}

/**
 * Accepts JSON bodies only: any other content type or encoding is 415, what does not parse is 400 invalid_json. A body
 * that is too large, nested too deeply or of too many values is refused with 413 as soon as it shows while it arrives;
 * bodies that do not fit the budget with 503.
 */
export function acceptJsonBodies(server: FastifyInstance, limits: BodyLimits): void {
  const turns = new Turns();
  server.decorateRequest("bodyReservation", null);
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", async (request: FastifyRequest) => {
    refuseEncoding(request.headers["content-encoding"]);
    const { owner, limitBytes } = senderOf(request, limits);
    const reservation = limits.budget.reserve(owner);
    request.bodyReservation = reservation;
    const body = await readBody(request.raw, limitBytes, reservation);
    if (body.length > LARGE_BYTES) await turns.next();
    return parseJson(body);
  });
}

/** Who a body is counted for, and how large it may be. The sender is authenticated by now where the route asks for it. */
function senderOf(request: FastifyRequest, { bodyLimitBytes }: BodyLimits): { owner: string; limitBytes: number } {
  const { caller, administrator } = request;
  if (caller !== null) return { owner: caller.principal.organizationId, limitBytes: bodyLimitBytes };
  // Only the routes of the admin API have the property.
  if (administrator === null || administrator === undefined)
    return { owner: ANONYMOUS, limitBytes: ANONYMOUS_LIMIT_BYTES };
  const { id } = administrator.role === "operator" ? administrator.adminToken : administrator.token;
  return { owner: id, limitBytes: ADMINISTRATOR_LIMIT_BYTES };
}

function refuseEncoding(encoding: string | undefined): void {
  if (encoding === undefined || encoding.toLowerCase() === "identity") return;
  throw new ApiError("unsupported_media_type", "Send the request body without a `Content-Encoding`.");
}

/** Reads the whole body, or rejects with the first bound that it exceeds; what follows is left unread. */
function readBody(raw: IncomingMessage, limitBytes: number, reservation: BodyReservation): Promise<Buffer> {
  const statedBytes = Number(raw.headers["content-length"] ?? limitBytes);
  if (statedBytes > limitBytes) return Promise.reject(tooManyBytes(limitBytes));
  return new Promise((resolve, reject) => {
    const body = new GrowingBuffer(statedBytes);
    const scanner = new JsonScanner(JSON_BOUNDS);
    const stop = () => raw.off("data", onData).off("end", onEnd).off("error", refuse);
    const refuse = (error: Error) => {
      stop();
      reservation.release();
      reject(error);
    };
    const onData = (chunk: Buffer) => {
      if (body.length + chunk.length > limitBytes) return refuse(tooManyBytes(limitBytes));
      if (!reservation.add(chunk.length)) return refuse(tooManyBodies());
      const excess = scanner.scan(chunk);
      if (excess !== undefined) return refuse(EXCESSES[excess]());
      body.append(chunk);
    };
    const onEnd = () => {
      stop();
      resolve(body.bytes);
    };
    if (raw.destroyed) return refuse(Object.assign(new Error("The connection was closed"), { code: "ECONNRESET" }));
    // A connection that closes before the end of its request is an error of the request (ECONNRESET).
    raw.on("data", onData).on("end", onEnd).on("error", refuse);
  });
}

const tooManyBytes = (limitBytes: number) =>
  new ApiError("body_too_large", `The request body is too large: at most ${limitBytes} bytes are allowed.`);
const tooManyBodies = () =>
  new ApiError("overloaded", "The service holds too many request bodies at the moment. Try again.", {
    headers: { "retry-after": "1" },
  });
const EXCESSES = {
  depth: () =>
    new ApiError(
      "body_too_large",
      `The request body is nested too deeply: at most ${JSON_DEPTH_MAX} levels of arrays and objects are allowed.`,
    ),
  values: () =>
    new ApiError(
      "body_too_large",
      `The request body has too many values: at most ${JSON_VALUES_MAX} are allowed, arrays and objects included.`,
    ),
};

/**
 * A buffer that grows with what arrives, and the first chunk itself until a second one comes. A list of chunks would let a
 * client choose how many objects are kept.
 */
class GrowingBuffer {
  readonly #lengthMax: number;
  #buffer: Buffer = EMPTY;
  length = 0;

  constructor(lengthMax: number) {
    this.#lengthMax = lengthMax;
  }

  get bytes(): Buffer {
    return this.#buffer.length === this.length ? this.#buffer : this.#buffer.subarray(0, this.length);
  }

  append(chunk: Buffer): void {
    if (this.length === 0) {
      this.#buffer = chunk;
      this.length = chunk.length;
      return;
    }
    const length = this.length + chunk.length;
    if (length > this.#buffer.length) {
      const capacity = Math.min(Math.max(FIRST_CAPACITY_BYTES, length * GROWTH), this.#lengthMax);
      const grown = Buffer.allocUnsafe(Math.max(capacity, length));
      this.bytes.copy(grown);
      this.#buffer = grown;
    }
    chunk.copy(this.#buffer, this.length);
    this.length = length;
  }
}

/** Hands out turns of the event loop one after another: incoming data and other connections are served between them. */
class Turns {
  #last: Promise<void> = Promise.resolve();

  next(): Promise<void> {
    this.#last = this.#last.then(() => new Promise((resolve) => setImmediate(resolve)));
    return this.#last;
  }
}

function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ApiError("invalid_json", "The request body is empty. Send a JSON object.");
  if (!isUtf8(body)) throw new ApiError("invalid_json", "The request body is not valid UTF-8.");
  try {
    return JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw new ApiError("invalid_json", `The request body is not valid JSON${positionIn(error)}.`, { cause: error });
  }
}

/** The position at which parsing stopped, from V8's message; the rest of that message quotes the body. */
function positionIn(error: unknown): string {
  const position = /at position (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
  return position === undefined ? "" : `: it breaks at position ${position}`;
}
