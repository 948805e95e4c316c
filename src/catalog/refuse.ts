import { OperatorError } from "../errors.ts";

/** A value as a mistake in the configuration shows it: short, and on one line. */
export function quote(text: string): string {
  const quoted = JSON.stringify(text);
  return quoted.length > 80 ? `${quoted.slice(0, 77)}…"` : quoted;
}

/** Throws the one line that tells of a mistake in the configuration. */
export function refuse(key: string, found: string, allowed: string): never {
  throw new OperatorError(`${key}: ${found}; allowed: ${allowed}`);
}
