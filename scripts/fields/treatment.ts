/** Observes what the service does with a field of a request, by decoding a request that has it. */
import { isDeepStrictEqual } from "node:util";
import { InvalidRequestError } from "../../src/api/validation.ts";
import type { DecodedCompletion } from "../../src/api/wire.ts";
import { UpstreamError } from "../../src/errors.ts";
import type { PublishedField } from "./published.ts";

/** "lost" is a field that is read without any effect; "unclear" a request that is refused for another field. */
export type Observed = "passed" | "translated" | "named" | "refused" | "lost" | "unclear";

export interface Wire {
  /** A request with the required fields only. */
  base: Record<string, unknown>;
  /** Fields that the service itself acts on. */
  own: readonly string[];
  decode(body: unknown): DecodedCompletion;
  /** Returns the request that a provider of this API receives, and the names of what it does not. */
  sent(decoded: DecodedCompletion): { body: unknown; ignored: readonly string[] };
}

const plain = (param: string | null | undefined) => (param ?? "").replaceAll(/\[\d+\]/g, "");

/** Observes what becomes of a field. `without` is the same request without it, unless the field is required. */
export function observe(wire: Wire, { path, body, value }: PublishedField, without: object): Observed {
  const [found, other] = [outcomeOf(wire, body), outcomeOf(wire, without)];
  if (found.refusal !== undefined) {
    if (isRefusalOf(path, found.refusal, other.refusal)) return "refused";
    return wire.own.includes(path) ? "translated" : "unclear";
  }
  if (found.ignored.some((name) => path === plain(name) || path.startsWith(`${plain(name)}.`))) return "named";
  if (hasValue(found.body, path.split("."), value)) return "passed";
  const isSame = ({ body: sent }: Outcome) => isDeepStrictEqual(found.body, sent);
  // A required field is in the other request too.
  return isSame(other) && isSame(outcomeOf(wire, wire.base)) && !wire.own.includes(path) ? "lost" : "translated";
}

interface Refusal {
  param: string;
  /** True if the service has no such field, value or kind of object; false if the request breaks another rule. */
  isUnsupported: boolean;
}

/** Tests whether a request is refused for a field, or for the object around it, which is refused without the field too. */
function isRefusalOf(path: string, { param, isUnsupported }: Refusal, other: Refusal | undefined): boolean {
  if (other === undefined) return path === param || param.startsWith(`${path}.`) || path.startsWith(`${param}.`);
  return isUnsupported && other.param === param && `${path}.`.startsWith(param.slice(0, param.lastIndexOf(".") + 1));
}

interface Outcome {
  refusal?: Refusal;
  ignored: readonly string[];
  /** The body that the provider receives, as JSON. */
  body?: unknown;
}

function outcomeOf(wire: Wire, body: object): Outcome {
  try {
    const decoded = wire.decode(body);
    const { body: sent, ignored } = wire.sent(decoded);
    return { ignored: [...(decoded.ignored ?? []), ...ignored], body: JSON.parse(JSON.stringify(sent)) };
  } catch (error) {
    if (error instanceof UpstreamError) return { refusal: refusalOf(error.param, true), ignored: [] };
    if (!(error instanceof InvalidRequestError)) throw error;
    const { param, code } = error.issue;
    const isKind = code === "invalid_value" && /\b(type|role)$/.test(param ?? "");
    return { refusal: refusalOf(param, isKind || code === "unsupported_value"), ignored: [] };
  }
}

function refusalOf(param: string | null | undefined, isUnsupported: boolean): Refusal {
  return { param: plain(param), isUnsupported };
}

/** Tests whether a body has the value at a path, in any item of the lists on the way. */
function hasValue(body: unknown, [name, ...rest]: string[], value: unknown): boolean {
  if (Array.isArray(body)) return body.some((item) => hasValue(item, name === undefined ? [] : [name, ...rest], value));
  if (name === undefined) return false;
  if (typeof body !== "object" || body === null) return false;
  const inner = (body as Record<string, unknown>)[name];
  if (rest.length === 0) return isDeepStrictEqual(inner, value);
  return hasValue(inner, rest, value);
}
