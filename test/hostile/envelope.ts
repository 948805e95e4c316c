import { expect } from "vitest";
import { compileCheck, ErrorEnvelope } from "../../src/api/validation.ts";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";

const envelopeIssue = compileCheck(ErrorEnvelope);

/** Expects the error envelope with a code of the catalog, and the status of that code unless `due` names another. */
export function expectEnvelope(status: number, body: string, due?: number): ErrorCode {
  const envelope = JSON.parse(body) as ErrorEnvelope;
  expect(envelopeIssue(envelope)).toBeUndefined();
  const code = envelope.error.code as ErrorCode;
  expect(Object.keys(errorCatalog)).toContain(code);
  expect(envelope.error.type).toBe(errorCatalog[code].type);
  expect(status).toBe(due ?? errorCatalog[code].status);
  expect(envelope.error.message).not.toMatch(/\p{Cc}|node:|\.ts:| {4}at /u);
  expect(envelope.error.message.isWellFormed()).toBe(true);
  return code;
}
