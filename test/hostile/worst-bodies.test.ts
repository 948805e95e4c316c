import { expect, test } from "vitest";
import { JSON_DEPTH_MAX, JSON_VALUES_MAX, MESSAGES_MAX, TOOLS_MAX } from "../../src/api/chat/request.ts";
import { JsonScanner } from "../../src/api/json-scanner.ts";
import { WORST_BODIES, type WorstBody } from "./worst-bodies.ts";

const CHUNK_BYTES = 64 * 1024;
const LIMIT_BYTES = { nothing: 16 * 1024, "admin token": 1024 * 1024, token: 20 * 1024 * 1024 };
/** Longer than any value of the bodies that exceed the number of values. */
const BYTES_OF_A_VALUE_MAX = 40;

/** Returns the limit that a body exceeds, and the number of bytes read until then. */
function boundsOf({ needs, text }: WorstBody): { exceeds: WorstBody["exceeds"]; bytesRead: number } {
  const bytes = Buffer.from(text("sandbox/echo"));
  if (bytes.length > LIMIT_BYTES[needs]) return { exceeds: "bytes", bytesRead: 0 };
  const scanner = new JsonScanner({ depth: JSON_DEPTH_MAX, values: JSON_VALUES_MAX });
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const exceeds = scanner.scan(bytes.subarray(at, at + CHUNK_BYTES));
    if (exceeds !== undefined) return { exceeds, bytesRead: at + CHUNK_BYTES };
  }
  return { exceeds: listOf(bytes.toString()), bytesRead: bytes.length };
}

function listOf(text: string): "messages" | "tools" | undefined {
  let body: { messages?: unknown[]; tools?: unknown[] };
  try {
    body = JSON.parse(text);
  } catch {
    return undefined;
  }
  if ((body.messages?.length ?? 0) > MESSAGES_MAX) return "messages";
  return (body.tools?.length ?? 0) > TOOLS_MAX ? "tools" : undefined;
}

test.each(WORST_BODIES.map((body) => [`${body.name} (needs ${body.needs})`, body] as const))(
  "the work for a body is bounded: %s",
  (_name, body) => {
    const { exceeds, bytesRead } = boundsOf(body);
    expect(exceeds).toBe(body.exceeds);
    if (exceeds === "depth") expect(bytesRead).toBe(CHUNK_BYTES);
    if (exceeds === "values") expect(bytesRead).toBeLessThan(JSON_VALUES_MAX * BYTES_OF_A_VALUE_MAX);
  },
);
