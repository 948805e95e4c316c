import { expect } from "vitest";
import { geminiErrors } from "../../src/api/gemini/errors.ts";
import { messagesErrors } from "../../src/api/messages/errors.ts";
import { compileCheck, ErrorEnvelope } from "../../src/api/validation.ts";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";

const envelopeIssue = compileCheck(ErrorEnvelope);
const messagesIssue = compileCheck(messagesErrors.schema);
const geminiIssue = compileCheck(geminiErrors.schema);

/** Expects the error envelope with a code of the catalog, and the status of that code unless `due` names another. */
export function expectEnvelope(status: number, body: string, due?: number): ErrorCode {
  const envelope = JSON.parse(body) as ErrorEnvelope;
  const code = codeOf(envelope);
  expect(Object.keys(errorCatalog)).toContain(code);
  expect(status).toBe(due ?? errorCatalog[code].status);
  expect(envelope.error.message).not.toMatch(/\p{Cc}|node:|\.ts:| {4}at /u);
  expect(envelope.error.message.isWellFormed()).toBe(true);
  return code;
}

function codeOf(envelope: ErrorEnvelope): ErrorCode {
  if ("type" in envelope) return messagesCodeOf(envelope);
  return "details" in envelope.error ? geminiCodeOf(envelope) : usualCodeOf(envelope);
}

/** Returns the code of an error in the format of Google's APIs. */
function geminiCodeOf(envelope: object): ErrorCode {
  expect(geminiIssue(envelope)).toBeUndefined();
  const [info] = (envelope as { error: { details: { reason: ErrorCode }[] } }).error.details;
  return info?.reason as ErrorCode;
}

function usualCodeOf(envelope: ErrorEnvelope): ErrorCode {
  expect(envelopeIssue(envelope)).toBeUndefined();
  const code = envelope.error.code as ErrorCode;
  expect(envelope.error.type).toBe(errorCatalog[code]?.type);
  return code;
}

/** Returns the code of an error in the format of Anthropic's API. */
function messagesCodeOf(envelope: object): ErrorCode {
  expect(messagesIssue(envelope)).toBeUndefined();
  return (envelope as { error: { details: { error_code: ErrorCode } } }).error.details.error_code;
}
