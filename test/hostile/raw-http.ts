import { connect, type Socket } from "node:net";

const HANG_MS = 120_000;

export interface RawAnswer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string;
}

/** Opens a TCP connection for bytes that no HTTP client would send. */
export function dial(url: string): Socket {
  const { port, hostname } = new URL(url);
  return connect(Number(port), hostname).on("error", () => {});
}

/** Resolves when a connection is closed, also after an error such as a reset. */
export function closeOf(socket: Socket): Promise<void> {
  return new Promise((resolve) => void socket.once("close", () => resolve()));
}

/** Sends bytes on a new connection and resolves with the first `count` final responses. Rejects if none arrives. */
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

/** Returns the complete responses in the received bytes, without interim ones (1xx). */
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
