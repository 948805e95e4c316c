import type { ReasoningDetail } from "../chat/request.ts";
import { isObject } from "../json.ts";
import { seal, unseal } from "../provider-state.ts";

/** Format of Gemini's own signatures, which are passed on as they are. */
export const GEMINI_FORMAT = "google-gemini-v1";
/** Id of the detail with the signature of a text, which has no id of its own as calls have. */
export const TEXT_SIGNATURE_ID = "text";
/** Begins the data of other models. In base64, because clients decode and encode signatures. */
const PREFIX = Buffer.from("tollgate:").toString("base64");

/** True for a signature that Gemini cannot read, because this service wrote it for another model. */
export function isForeign(signature: string): boolean {
  return signature.startsWith(PREFIX);
}

/** Returns the signature of a function call with provider data. */
export function signatureOfCall(callId: string, extraContent: unknown): string {
  const { google, ...others } = isObject(extraContent) ? extraContent : {};
  const own = isObject(google) ? google : {};
  const isOwn = Object.keys(others).length === 0 && Object.keys(own).length === 1;
  if (isOwn && typeof own.thought_signature === "string") return own.thought_signature;
  return seal(PREFIX, { calls: { [callId]: extraContent } });
}

/** Reads the signature of a function call: the provider data that this service wrote, or a signature of Gemini's own. */
export function extraContentOf(signature: string): unknown {
  const [extraContent] = Object.values(unseal(PREFIX, signature)?.calls ?? {});
  return extraContent ?? { google: { thought_signature: signature } };
}

/** Returns the signature of a block of reasoning. */
export function signatureOfDetail(detail: ReasoningDetail): string {
  const isOwn = detail.format === GEMINI_FORMAT && detail.type === "reasoning.encrypted" && detail.text === undefined;
  return isOwn && detail.data !== undefined ? detail.data : seal(PREFIX, { details: [detail] });
}

/** Reads the signature of a thought, whose text goes with one of Gemini's own. */
export function detailOf(signature: string, text: string): ReasoningDetail {
  const [detail] = unseal(PREFIX, signature)?.details ?? [];
  return detail ?? { type: "reasoning.encrypted", format: GEMINI_FORMAT, ...(text && { text }), data: signature };
}
