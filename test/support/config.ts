import { expect } from "vitest";
import { loadConfig } from "../../src/config.ts";
import { OperatorError } from "../../src/errors.ts";

/** Reads no file, as if there were none. */
export const noFile = () => {
  throw Object.assign(new Error("no file"), { code: "ENOENT" });
};

/** Loads a configuration from the text of a file. */
export const load = (text: string, environment = {}, flags = {}) =>
  loadConfig({ environment, flags, readFile: () => text.replace(/^\n/, "") });

/** Returns the message with which a configuration is refused. It has one line. */
export function lineOf(sources: () => unknown): string {
  try {
    sources();
  } catch (error) {
    expect(error).toBeInstanceOf(OperatorError);
    const { message } = error as Error;
    expect(message).not.toContain("\n");
    return message;
  }
  throw new Error("Nothing was refused.");
}
