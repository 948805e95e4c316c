import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

/** An export as a collector received it. */
export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

export interface Collector {
  url: string;
  received: Received[];
  close(): Promise<void>;
}

/** Starts an OpenTelemetry collector that only keeps what it receives. */
export async function startCollector(): Promise<Collector> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    received.push({ path: request.url ?? "", headers: request.headers, body: Buffer.concat(chunks) });
    response.writeHead(200, { "content-type": "application/x-protobuf" }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A span of OTLP's ExportTraceServiceRequest, as far as the tests read it. */
export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string;
  name: string;
  /** 1 internal, 2 server, 3 client. */
  kind: number;
  startNanoseconds: bigint;
  endNanoseconds: bigint;
  attributes: Record<string, string | number | string[]>;
  /** 2 for an error. */
  status: number;
}

/** Returns the spans of all exports. */
export function spansOf({ received }: Pick<Collector, "received">): ReceivedSpan[] {
  const traces = received.filter(({ path }) => path === "/v1/traces");
  // ExportTraceServiceRequest.resource_spans.scope_spans.spans
  return traces.flatMap(({ body }) => messagesAt(body, [1, 2, 2])).map(toSpan);
}

type Field = bigint | Buffer;

/** Reads the fields of a protobuf message, by their numbers. */
function fieldsOf(message: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>();
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message[at++] ?? 0;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const bytes = (length: number) => {
    at += length;
    return message.subarray(at - length, at);
  };
  while (at < message.length) {
    const tag = Number(varint());
    const type = tag & 7;
    const value =
      type === 0 ? varint() : type === 1 ? bytes(8).readBigUInt64LE() : type === 5 ? bytes(4) : bytes(Number(varint()));
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), value]);
  }
  return fields;
}

function messagesAt(message: Buffer, [first, ...path]: number[]): Buffer[] {
  if (first === undefined) return [message];
  const inner = (fieldsOf(message).get(first) ?? []) as Buffer[];
  return inner.flatMap((one) => messagesAt(one, path));
}

function toSpan(message: Buffer): ReceivedSpan {
  const fields = fieldsOf(message);
  const bytes = (field: number) => (fields.get(field)?.[0] as Buffer | undefined) ?? Buffer.alloc(0);
  const number = (field: number) => (fields.get(field)?.[0] as bigint | undefined) ?? 0n;
  const attributes = ((fields.get(9) ?? []) as Buffer[]).map((pair) => {
    const [key, value] = [1, 2].map((field) => fieldsOf(pair).get(field)?.[0] as Buffer);
    return [`${key}`, toValue(value ?? Buffer.alloc(0))];
  });
  return {
    traceId: bytes(1).toString("hex"),
    spanId: bytes(2).toString("hex"),
    parentSpanId: bytes(4).toString("hex"),
    name: `${bytes(5)}`,
    kind: Number(number(6)),
    startNanoseconds: number(7),
    endNanoseconds: number(8),
    attributes: Object.fromEntries(attributes),
    status: Number(fieldsOf(bytes(15)).get(3)?.[0] ?? 0n),
  };
}

/** AnyValue: 1 a text, 3 an integer, 4 a double, 5 an array. */
function toValue(message: Buffer): string | number | string[] {
  const fields = fieldsOf(message);
  const [text] = fields.get(1) ?? [];
  if (text !== undefined) return `${text}`;
  const [double] = fields.get(4) ?? [];
  if (double !== undefined) return new Float64Array(BigUint64Array.of(double as bigint).buffer)[0] ?? 0;
  const [array] = fields.get(5) ?? [];
  if (array !== undefined) return messagesAt(array as Buffer, [1, 1]).map(String);
  return Number(fields.get(3)?.[0] ?? 0n);
}
