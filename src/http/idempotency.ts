import { createHash } from "node:crypto";
import type { FastifyRequest } from "fastify";
import type { ChatCompletionRequest } from "../api/request.ts";
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

/** The key of a completion with its fingerprint, null where it has none. Throws invalid_value. */
export function idempotencyOf(request: FastifyRequest, asked: ChatCompletionRequest): Idempotency | null {
  const key = idempotencyKeyOf(request);
  return key === null ? null : { key, fingerprint: fingerprintOf(asked) };
}

/** The key of a request, null where it has none. Throws invalid_value. */
export function idempotencyKeyOf(request: FastifyRequest): string | null {
  if (request.headers["idempotency-key"] === undefined) return null;
  const keys = request.raw.headersDistinct["idempotency-key"] ?? [];
  const [key = ""] = keys;
  if (keys.length > 1 || !KEY.test(key)) {
    const message = `Invalid header '${IDEMPOTENCY_HEADER}': expected it once, with 1 to 255 printable ASCII characters.`;
    throw new ApiError("invalid_value", message, { param: IDEMPOTENCY_HEADER });
  }
  return key;
}

/**
 * SHA-256, in hexadecimal, over the request as JSON without white space: the fields that the service reads, without those
 * that are absent or null, the keys of every object in the order of their UTF-16 code units (as RFC 8785 has it).
 */
export function fingerprintOf(asked: object): string {
  return createHash("sha256")
    .update(JSON.stringify(withSortedKeys(asked)))
    .digest("hex");
}

/** A copy. Without recursion: how deep a schema is nested is its caller's choice. */
function withSortedKeys(asked: object): object {
  const root = sortedCopy(asked);
  const open = [root];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    for (const [key, inner] of Object.entries(node)) {
      if (typeof inner !== "object" || inner === null) continue;
      const copy = sortedCopy(inner);
      node[key] = copy;
      open.push(copy);
    }
  }
  return root;
}

function sortedCopy(value: object): Record<string, unknown> {
  if (Array.isArray(value)) return [...value] as unknown as Record<string, unknown>;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
