import { type Static, Type } from "typebox";
import { ReasoningDetail } from "./chat/request.ts";
import { parseJson } from "./json.ts";
import { JSON_BOUNDS, JsonScanner } from "./json-scanner.ts";
import { compileCheck } from "./validation.ts";

/** Data that providers want back with the next request, and that a wire has no fields for. */
const ProviderState = Type.Object({
  details: Type.Optional(Type.Array(ReasoningDetail)),
  /** `extra_content` of tool calls, by the id of the call. */
  calls: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
export type ProviderState = Static<typeof ProviderState>;
const check = compileCheck(ProviderState);

/** Writes provider data as a text that clients send back: opaque to them, but not secret. */
export function seal(prefix: string, state: ProviderState): string {
  return prefix + Buffer.from(JSON.stringify(state)).toString("base64");
}

/** Reads what `seal` wrote; undefined for any other text, for one that was changed, and for one that no body could contain. */
export function unseal(prefix: string, text: string): ProviderState | undefined {
  if (!text.startsWith(prefix)) return undefined;
  const bytes = Buffer.from(text.slice(prefix.length), "base64");
  if (new JsonScanner(JSON_BOUNDS).scan(bytes) !== undefined) return undefined;
  const state = parseJson(bytes.toString());
  return check(state) === undefined ? (state as ProviderState) : undefined;
}
