import { expect } from "vitest";
import type { NativeRequest } from "../../src/api/wire.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { UpstreamRequest } from "../../src/providers/provider.ts";
import type { ProviderSettings, SecondWire } from "../../src/providers/settings.ts";
import { type Heard, hear, STREAM_HEAD, settingsOf, startWire, whole } from "./wire.ts";

export type JsonEvent = { type: string } & Record<string, unknown>;

/** The settings of a provider with a second wire. */
export function secondWireSettings(secondWire: SecondWire, baseUrl: string): ProviderSettings {
  return settingsOf(baseUrl, { apiKey: "sk-of-the-operator", secondWire });
}

export const nativeOf = (wire: NativeRequest["wire"], fields: Partial<NativeRequest> = {}): NativeRequest => ({
  wire,
  body: {},
  headers: {},
  ...fields,
});

/** Server-sent events, which the wires name by their type. */
export const sse = (events: readonly object[]): string =>
  events
    .map((event) => `${"type" in event ? `event: ${event.type}\n` : ""}data: ${JSON.stringify(event)}\n\n`)
    .join("");

interface Asked {
  fields?: Partial<UpstreamRequest>;
  /** Absent for a chat completion. */
  native?: NativeRequest | undefined;
}

export interface HeardOnce extends Heard {
  /** The request that the upstream received. */
  received: { head: string; body: Record<string, unknown> };
}

/** Answers one request with a stream of events or with a document. */
export async function hearAnswer(
  secondWire: SecondWire,
  answer: readonly object[] | object,
  { fields = {}, native }: Asked = { native: nativeOf(secondWire.wire) },
): Promise<HeardOnce> {
  const isStreamed = Array.isArray(answer);
  const wire = await startWire((socket) => {
    socket.end(isStreamed ? STREAM_HEAD + sse(answer) : whole(200, answer));
  });
  const provider = createProvider(secondWireSettings(secondWire, wire.baseUrl), {});
  try {
    const heard = await hear(provider, { stream: isStreamed, ...fields }, undefined, native);
    const [head = "", body = "{}"] = (wire.requests[0] ?? "").split("\r\n\r\n");
    return { ...heard, received: { head, body: JSON.parse(body) } };
  } finally {
    await provider.close();
    await wire.end();
  }
}

const PARALLEL = 16;

/**
 * Cuts a stream after every byte. Each cut stream must give a prefix of the chunks of the whole one, and fail if it has
 * no finish reason.
 */
export async function expectCutsToFail(secondWire: SecondWire, events: readonly object[]): Promise<void> {
  const bytes = Buffer.from(sse(events));
  const native = nativeOf(secondWire.wire);
  const { chunks: all } = await hearAnswer(secondWire, events);
  const wire = await startWire((socket, request) => {
    const { cut } = JSON.parse(request.split("\r\n\r\n")[1] ?? "{}");
    socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), bytes.subarray(0, cut)]));
  });
  const provider = createProvider(secondWireSettings(secondWire, wire.baseUrl), {});
  let next = 0;
  const readOn = async () => {
    for (let cut = next++; cut < bytes.length; cut = next++) {
      const { chunks, error } = await hear(provider, {}, undefined, { ...native, body: { cut } });
      expect(chunks, `cut after ${cut} bytes`).toEqual(all.slice(0, chunks.length));
      const isFinished = chunks.some(({ finish_reason }) => finish_reason !== undefined);
      if (isFinished) expect(error).toBeUndefined();
      else expect(error, `cut after ${cut} bytes`).toMatchObject({ failure: "failed" });
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, readOn));
  await provider.close();
  await wire.end();
  expect(next).toBeGreaterThanOrEqual(bytes.length);
}
