import { isUtf8 } from "node:buffer";
import type { IncomingMessage } from "node:http";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { shareOwnerOf } from "../admin/sessions.ts";
import { JSON_DEPTH_MAX, JSON_VALUES_MAX } from "../api/chat/request.ts";
import { JSON_BOUNDS, JsonScanner } from "../api/json-scanner.ts";
import { ApiError } from "../errors.ts";
import type { FairBudget } from "../ledger/fair-budget.ts";
import type { FairTurns } from "../ledger/fair-queue.ts";
import { FORM_TYPE, readForm } from "./multipart.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The request's share of the body budget; null until the body is read. Released when the connection is closed. */
    bodyReservation: BodyReservation | null;
  }
}

const ANONYMOUS_LIMIT_BYTES = 16 * 1024;
const ADMINISTRATOR_LIMIT_BYTES = 1024 * 1024;
/** Least memory of a chunk besides its bytes (measured): the client chooses how many there are. */
const CHUNK_BYTES = 512;
/** Larger bodies are read one chunk at a time, and parsed one at a time, so that other connections are served in between. */
const LARGE_BYTES = 32 * 1024;

interface BodyLimits {
  /** Largest body of an authenticated request to `/v1`. */
  bodyLimitBytes: number;
  /** Limits the bytes of all bodies in memory, from their arrival until their requests end. */
  budget: FairBudget;
  turns: FairTurns;
}

/**
 * Accepts JSON bodies, and forms on the routes that take files; others get 415 or 400. A body that is too large, too deep or has
 * too many values gets 413 while it arrives, and one that does not fit the budget 503.
 */
export function acceptBodies(server: FastifyInstance, limits: BodyLimits): void {
  const { turns } = limits;
  const read = async (request: FastifyRequest, scanner: BodyScanner) => {
    if ((request.headers["content-encoding"] ?? "identity").toLowerCase() !== "identity") {
      throw new ApiError("unsupported_media_type", "Send the request body without a `Content-Encoding`.");
    }
    const { owner, limitBytes } = senderOf(request, limits);
    const reservation = new BodyReservation(limits.budget, owner);
    request.bodyReservation = reservation;
    const inTurn = <Result>(task: () => Result | Promise<Result>) => turns.run(owner, task);
    return { body: await readBody(request.raw, { limitBytes, scanner }, reservation, inTurn), inTurn };
  };
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", async (request: FastifyRequest) => {
    // The signature of a webhook covers the raw bytes.
    if (request.routeOptions.config.rawLimitBytes !== undefined) return (await read(request, NO_SCANNER)).body;
    if (takesForm(request)) throw wrongMediaType(request);
    const { body, inTurn } = await read(request, new JsonScanner(JSON_BOUNDS));
    // Clients that state the type in all their requests send it without a body too.
    if (body.length === 0 && request.routeOptions.schema?.body === undefined) return undefined;
    return body.length > LARGE_BYTES ? inTurn(() => parseJson(body)) : parseJson(body);
  });
  server.addContentTypeParser(FORM_TYPE, async (request: FastifyRequest) => {
    if (!takesForm(request)) throw wrongMediaType(request);
    const { body, inTurn } = await read(request, NO_SCANNER);
    // The form for the upstream is a copy.
    reserveBytes(request, body.length);
    return inTurn(() => readForm(body, request.headers["content-type"] ?? ""));
  });
}

type BodyScanner = Pick<JsonScanner, "scan">;
const NO_SCANNER: BodyScanner = { scan: () => undefined };

const takesForm = ({ routeOptions: { config } }: FastifyRequest) => config.isForm === true;

/** Returns the error of a body whose media type is not the one that its route takes. */
export function wrongMediaType(request: FastifyRequest): ApiError {
  const message = takesForm(request) ? `Send the request body as \`Content-Type: ${FORM_TYPE}\`.` : undefined;
  return new ApiError("unsupported_media_type", message);
}

/** Returns the owner that a body is counted for, and its size limit. Authentication has already run. */
function senderOf(request: FastifyRequest, { bodyLimitBytes }: BodyLimits): { owner: string; limitBytes: number } {
  const { caller } = request;
  const { rawLimitBytes = ANONYMOUS_LIMIT_BYTES } = request.routeOptions.config;
  if (caller === null) return { owner: ANONYMOUS, limitBytes: rawLimitBytes };
  const { principal, administrator } = caller;
  if (principal !== undefined) return { owner: principal.organizationId, limitBytes: bodyLimitBytes };
  return { owner: shareOwnerOf(administrator), limitBytes: ADMINISTRATOR_LIMIT_BYTES };
}

/** Reads the whole body, each chunk of a large one in turn. Rejects with the first limit that it exceeds. */
function readBody(
  raw: IncomingMessage,
  { limitBytes, scanner }: { limitBytes: number; scanner: BodyScanner },
  reservation: BodyReservation,
  inTurn: (task: () => void) => Promise<void>,
): Promise<Buffer> {
  const statedBytes = Number(raw.headers["content-length"] ?? limitBytes);
  if (statedBytes > limitBytes) return Promise.reject(tooManyBytes(limitBytes));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    let isStopped = false;
    const stop = () => {
      isStopped = true;
      raw.off("data", onData).off("end", onEnd).off("error", fail);
    };
    const resume = () => {
      if (!isStopped) raw.resume();
    };
    const fail = (error: Error) => {
      stop();
      reservation.release();
      reject(error);
    };
    const onData = (chunk: Buffer) => {
      length += chunk.length;
      if (length > limitBytes) return fail(tooManyBytes(limitBytes));
      if (!reservation.add(chunk.length + CHUNK_BYTES)) return fail(tooManyBodies());
      const excess = scanner.scan(chunk);
      if (excess !== undefined) return fail(new ApiError("body_too_large", EXCESSES[excess]));
      chunks.push(chunk);
      if (length > LARGE_BYTES) {
        raw.pause();
        void inTurn(resume);
      }
    };
    const onEnd = () => {
      stop();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, length));
    };
    if (raw.destroyed) return fail(Object.assign(new Error("The connection was closed"), { code: "ECONNRESET" }));
    // A connection that closes before the end of its request is an error of the request (ECONNRESET).
    raw.on("data", onData).on("end", onEnd).on("error", fail);
  });
}

const tooManyBytes = (limitBytes: number) =>
  new ApiError("body_too_large", `The request body is too large: at most ${limitBytes} bytes are allowed.`);
const tooManyBodies = () =>
  new ApiError("overloaded", "The service holds too many request bodies at the moment. Try again.", {
    headers: { "retry-after": "1" },
  });
const EXCESSES = {
  depth: `The request body is nested too deeply: at most ${JSON_DEPTH_MAX} levels of arrays and objects are allowed.`,
  values: `The request body has too many values: at most ${JSON_VALUES_MAX} are allowed, arrays and objects included.`,
};

function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ApiError("invalid_json", "The request body is empty. Send a JSON object.");
  if (!isUtf8(body)) throw new ApiError("invalid_json", "The request body is not valid UTF-8.");
  try {
    return JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw new ApiError("invalid_json", `The request body is not valid JSON${positionIn(error)}.`, { cause: error });
  }
}

/** Returns the position of a syntax error from V8's message. The rest of that message quotes the body. */
function positionIn(error: unknown): string {
  const position = /at position (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
  return position === undefined ? "" : ` at position ${position}`;
}

/** Owner of the bodies of all unauthenticated callers; other owners are organizations and administrators. */
export const ANONYMOUS = "anonymous";

const ANONYMOUS_SHARE_MAX = 1 / 16;

/** Bytes that one request's body takes of the budget. */
export class BodyReservation {
  readonly #budget: FairBudget;
  readonly #owner: string;
  #heldBytes = 0;

  constructor(budget: FairBudget, owner: string) {
    this.#budget = budget;
    this.#owner = owner;
  }

  /** True if work on what was read takes long. */
  get isLarge(): boolean {
    return this.#heldBytes > LARGE_BYTES;
  }

  /** Takes further bytes. Returns false, and takes none, if they exceed the budget. */
  add(bytes: number): boolean {
    const share = this.#owner === ANONYMOUS ? ANONYMOUS_SHARE_MAX : undefined;
    if (!this.#budget.take(this.#owner, bytes, share)) return false;
    this.#heldBytes += bytes;
    return true;
  }

  /** Returns all bytes to the budget; may be called again. */
  release(): void {
    if (this.#heldBytes > 0) this.#budget.putBack(this.#owner, this.#heldBytes);
    this.#heldBytes = 0;
  }
}

/** Counts further bytes of a request as those of its body. Throws overloaded if they exceed the budget. */
export function reserveBytes({ bodyReservation }: Pick<FastifyRequest, "bodyReservation">, bytes: number): void {
  if (bodyReservation?.add(bytes) === false) throw tooManyBodies();
}

/** Counts the body of a request until the returned function is called, also after its client has disconnected. */
export function holdBody(request: Pick<FastifyRequest, "bodyReservation">): () => void {
  const reservation = request.bodyReservation;
  request.bodyReservation = null;
  return () => reservation?.release();
}
