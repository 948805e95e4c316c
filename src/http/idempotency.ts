import { createHash } from "node:crypto";
import type { FastifyRequest } from "fastify";
import type { ChatCompletionRequest } from "../contract/request.ts";
import { ApiError } from "../errors.ts";

export const IDEMPOTENCY_HEADER = "Idempotency-Key";
/** Printable ASCII, of which at least one is no space: what every HTTP library hands on as it was sent. */
const KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

/** What makes a request the same as an earlier one, within its organization. */
export interface Idempotency {
  key: string;
  /** Of what was asked. */
  fingerprint: string;
}

/** The key of a request, null where it has none. Throws invalid_value. */
export function idempotencyOf(request: FastifyRequest, asked: ChatCompletionRequest): Idempotency | null {
  if (request.headers["idempotency-key"] === undefined) return null;
  const keys = request.raw.headersDistinct["idempotency-key"] ?? [];
  const [key = ""] = keys;
  if (keys.length > 1 || !KEY.test(key)) {
    const message = `Invalid header '${IDEMPOTENCY_HEADER}': expected it once, with 1 to 255 printable ASCII characters.`;
    throw new ApiError("invalid_value", message, { param: IDEMPOTENCY_HEADER });
  }
  return { key, fingerprint: fingerprintOf(asked) };
}

/**
 * SHA-256, in hexadecimal, over the request as JSON without white space: the fields that the service reads, without those
 * that are absent or null, the keys of every object in the order of their UTF-16 code units (as RFC 8785 has it).
 */
export function fingerprintOf(asked: ChatCompletionRequest): string {
  const canonical = JSON.stringify(asked, (_key, value: unknown) => (isRecord(value) ? sorted(value) : value));
  return createHash("sha256").update(canonical).digest("hex");
}

function sorted(record: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
