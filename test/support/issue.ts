import { InvalidRequestError, type ValidationIssue } from "../../src/api/validation.ts";

/** Returns the issue for which a decoder refuses a body; undefined if the body is valid. */
export function issueIn(decode: () => unknown): ValidationIssue | undefined {
  try {
    decode();
    return undefined;
  } catch (error) {
    if (error instanceof InvalidRequestError) return error.issue;
    throw error;
  }
}
