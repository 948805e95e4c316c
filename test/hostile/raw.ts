import { connect, type Socket } from "node:net";
import { expect } from "vitest";
import { ErrorEnvelope } from "../../src/contract/error.ts";
import { compileCheck } from "../../src/contract/validation.ts";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";

const HANG_MS = 120_000;
const envelopeIssue = compileCheck(ErrorEnvelope);

export interface RawAnswer {
  status: number;
  /** Names in small letters. */
  headers: Record<string, string>;
  body: string;
}

/** A connection below HTTP, to say what no HTTP client would. */
export function dial(url: string): Socket {
  const { port, hostname } = new URL(url);
  return connect(Number(port), hostname).on("error", () => {});
}

/** Sends bytes on a connection of their own and gives the final answers to them, in order. Rejects where none comes. */
export function exchangeRaw(url: string, bytes: string | Buffer, count = 1): Promise<RawAnswer[]> {
  return new Promise((resolve, reject) => {
    const socket = dial(url);
    let received: Buffer = Buffer.alloc(0);
    const timer = setTimeout(() => finish(new Error(`No answer to ${bytes.toString().slice(0, 80)}`)), HANG_MS);
    const finish = (error?: Error) => {
      clearTimeout(timer);
      socket.destroy();
      if (error === undefined) resolve(answersIn(received));
      else reject(error);
    };
    socket.on("data", (data: Buffer) => {
      received = Buffer.concat([received, data]);
      if (answersIn(received).length >= count) finish();
    });
    socket.on("close", () => finish());
    socket.write(bytes);
  });
}

/** The answers that are complete, interim ones left out. */
export function answersIn(received: Buffer): RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let rest = received; ; ) {
    const end = rest.indexOf("\r\n\r\n");
    if (end < 0) return answers;
    const [line = "", ...fields] = rest.subarray(0, end).toString("latin1").split("\r\n");
    const headers: Record<string, string> = {};
    for (const field of fields) {
      const colon = field.indexOf(":");
      headers[field.slice(0, colon).toLowerCase()] = field.slice(colon + 1).trim();
    }
    const status = Number(line.split(" ")[1]);
    const length = Number(headers["content-length"] ?? 0);
    const start = end + 4;
    if (rest.length < start + length) return answers;
    if (status >= 200) answers.push({ status, headers, body: rest.subarray(start, start + length).toString("utf8") });
    rest = rest.subarray(start + length);
  }
}

/** That an answer is the error envelope with a code of the catalog, under the status of that code unless another is due. */
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
