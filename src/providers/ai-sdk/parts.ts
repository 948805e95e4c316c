import type { LanguageModelV4FinishReason, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { AnswerReader } from "./answer.ts";

export interface PartsOptions {
  read(): ReturnType<ReadableStreamDefaultReader<LanguageModelV4StreamPart>["read"]>;
  reader: AnswerReader;
  /** Returns the failure of the connection; undefined if it has not failed. */
  failure(): unknown;
  /** Converts an error to the one that the reader receives. */
  fail(error: unknown): unknown;
  /** Closes the connection. */
  end(): void;
}

/** Reads a streamed answer as chunks. Yields all chunks before a failure, then throws it. Ending early closes the connection. */
export async function* readParts(options: PartsOptions): AsyncGenerator<readonly UpstreamChunk[]> {
  const { read, reader, failure, fail, end } = options;
  try {
    for (let next = await read(); !next.done; next = await read()) {
      const part = next.value;
      if (part.type === "error") throw part.error;
      if (part.type === "finish" && failure() !== undefined && !hasEnded(part.finishReason)) break;
      const chunk = reader.readPart(part);
      if (chunk !== undefined) yield [chunk];
    }
    if (!reader.isFinished) throw failure() ?? new UpstreamError("failed", "The stream ended without a finish reason");
  } catch (error) {
    throw fail(error);
  } finally {
    end();
  }
}

/** True if the upstream itself gave the finish reason: the answer is then complete even if the connection breaks. */
function hasEnded({ unified, raw }: LanguageModelV4FinishReason): boolean {
  return raw !== undefined && unified !== "error" && unified !== "interrupted";
}
