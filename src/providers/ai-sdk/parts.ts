import type { LanguageModelV4FinishReason, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { AnswerReader } from "./answer.ts";

export interface PartsOptions {
  read(): ReturnType<ReadableStreamDefaultReader<LanguageModelV4StreamPart>["read"]>;
  reader: AnswerReader;
  /** What broke the connection, if it broke. */
  failure(): unknown;
  /** What a failure is in the service's terms. */
  fail(error: unknown): unknown;
  /** Closes the connection. */
  end(): void;
}

/** A streamed answer as chunks: all that came before a failure, then the failure. Ending it early closes the connection. */
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

/** Whether the upstream itself said how the answer ended: then a connection that breaks takes nothing from it. */
function hasEnded({ unified, raw }: LanguageModelV4FinishReason): boolean {
  return raw !== undefined && unified !== "error" && unified !== "interrupted";
}
