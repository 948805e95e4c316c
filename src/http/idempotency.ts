import { createHash } from "node:crypto";
import type { FastifyRequest } from "fastify";
import { ApiError } from "../errors.ts";
import type { GatewayCall } from "../gateway/gateway.ts";
import { headerValues } from "./authentication.ts";

export const IDEMPOTENCY_HEADER = "Idempotency-Key";
/** Printable ASCII without leading and trailing spaces, which HTTP libraries would remove. */
const KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

/** Returns the key and the fingerprint of a request, null without a key. Throws invalid_value. */
export function idempotencyOf(request: FastifyRequest, body: object): GatewayCall["idempotency"] {
  const key = idempotencyKeyOf(request);
  if (key === null) return null;
  const { url: endpoint } = request.routeOptions;
  return { key, fingerprint: fingerprintOf({ endpoint, body }) };
}

export const RETRY_COUNT_HEADER = "X-Stainless-Retry-Count";

/** Returns how retries of a request are recognized; null without the header of SDKs, or with an Idempotency-Key. */
export function repetitionOf(request: FastifyRequest, body: object): GatewayCall["repetition"] {
  const { [RETRY_COUNT_HEADER.toLowerCase()]: count, "idempotency-key": key } = request.headers;
  if (typeof count !== "string" || !/^\d{1,9}$/.test(count) || key !== undefined) return null;
  const { url: endpoint } = request.routeOptions;
  let fingerprint: string | undefined;
  return {
    isRetry: Number(count) > 0,
    fingerprint: () => {
      fingerprint ??= fingerprintOf({ endpoint, body });
      return fingerprint;
    },
  };
}

/** Returns the Idempotency-Key of a request, null without one. Throws invalid_value. */
export function idempotencyKeyOf(request: FastifyRequest): string | null {
  if (request.headers["idempotency-key"] === undefined) return null;
  const keys = headerValues(request.raw, "idempotency-key");
  const [key = ""] = keys;
  if (keys.length > 1 || !KEY.test(key)) {
    const message = `Invalid header '${IDEMPOTENCY_HEADER}': expected one value of 1 to 255 printable ASCII characters.`;
    throw new ApiError("invalid_value", message, { param: IDEMPOTENCY_HEADER });
  }
  return key;
}

/** Returns the SHA-256, in hexadecimal, of what the service reads of a request, with the keys of every object sorted (RFC 8785). */
export function fingerprintOf(body: object): string {
  return createHash("sha256").update(JSON.stringify(body, withSortedKeys)).digest("hex");
}

function withSortedKeys(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
