import { type Static, Type } from "typebox";
import { ReasoningDetail } from "../chat/request.ts";
import { isObject, parseJson } from "../json.ts";
import { compileCheck } from "../validation.ts";

/** Format of Gemini's own signatures, which are passed on as they are. */
export const GEMINI_FORMAT = "google-gemini-v1";
/** Begins the data of other models: clients decode and encode signatures, so a prefix outside of their base64 would not do. */
const PREFIX = "tollgate";

/** Provider data in a signature: a block of reasoning, or the data of a function call. */
const SignedState = Type.Object({
  detail: Type.Optional(ReasoningDetail),
  extraContent: Type.Optional(Type.Unknown()),
});
export type SignedState = Static<typeof SignedState>;
const checkState = compileCheck(SignedState);

/** Returns the signature of a function call with provider data. */
export function signatureOfCall(extraContent: unknown): string {
  const { google, ...others } = isObject(extraContent) ? extraContent : {};
  const own = isObject(google) ? google : {};
  const isOwn = Object.keys(others).length === 0 && Object.keys(own).length === 1;
  if (isOwn && typeof own.thought_signature === "string") return own.thought_signature;
  return sealed({ extraContent });
}

/** Returns the signature of a block of reasoning. */
export function signatureOfDetail(detail: ReasoningDetail): string {
  const isOwn = detail.format === GEMINI_FORMAT && detail.type === "reasoning.encrypted" && detail.text === undefined;
  return isOwn && detail.data !== undefined ? detail.data : sealed({ detail });
}

function sealed(state: SignedState): string {
  return Buffer.from(PREFIX + JSON.stringify(state)).toString("base64");
}

/** Reads a signature that this service wrote; undefined for one of Gemini's own, or one that was changed. */
export function signedStateOf(signature: string): SignedState | undefined {
  const text = Buffer.from(signature, "base64").toString();
  const state = text.startsWith(PREFIX) ? parseJson(text.slice(PREFIX.length)) : undefined;
  return checkState(state) === undefined ? (state as SignedState) : undefined;
}
