import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Ask, Intent, Wire } from "./intent.ts";
import { documentOf, type Step, stepsOf } from "./wires.ts";

/** Finds the request in its prompt. */
const ID = /\{\{(\w+)\}\}/;
const FAILURES: Partial<Record<Intent["answer"]["ending"], { status: number; type: string; body: string }>> = {
  refusal: { status: 400, type: "application/json", body: '{"error":{"message":"no","type":"invalid_request_error"}}' },
  failure: { status: 500, type: "application/json", body: '{"error":{"message":"broken","type":"server_error"}}' },
  html: { status: 200, type: "text/html", body: "<html>ready</html>" },
};

/** An upstream of all wires that gives each request the answer of its intent, and notes what it wrote. */
export class FuzzUpstream {
  readonly url: string;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  static async open(intents: ReadonlyMap<string, Intent>): Promise<FuzzUpstream> {
    const server = createServer((request, response) => {
      response.on("error", () => {});
      void answer(intents, request, response);
    });
    server.requestTimeout = 0;
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new FuzzUpstream(server);
  }

  /** Address of the API of a wire. */
  baseUrl(wire: Wire): string {
    return `${this.url}/${wire}/v1`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function answer(
  intents: ReadonlyMap<string, Intent>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let text = "";
  try {
    for await (const chunk of request) text += chunk;
  } catch {
    return;
  }
  const intent = intents.get(ID.exec(text)?.[1] ?? "");
  if (intent === undefined) throw new Error(`the upstream got a request that no client sent: ${text}`);
  const body = JSON.parse(text);
  const ask: Ask = {
    requestId: String(request.headers["x-request-id"]),
    at: Date.now(),
    maxTokens: body.max_tokens ?? body.max_completion_tokens ?? body.max_output_tokens ?? 0,
    written: 0,
    reports: [],
    hasFailed: false,
    isFinished: false,
  };
  intent.asks.push(ask);
  const { ending, failsFirst, pauseMs } = intent.answer;
  const failure = intent.asks.length <= failsFirst ? FAILURES.failure : FAILURES[ending];
  ask.hasFailed = failure !== undefined || ending === "reset";
  if (pauseMs > 0) await sleep(pauseMs);
  if (response.destroyed) return;
  if (failure !== undefined) {
    response.writeHead(failure.status, { "content-type": failure.type }).end(failure.body);
  } else if (ending === "reset") response.destroy();
  else if (body.stream === true) await stream(intent, ask, response);
  else await sendWhole(intent, ask, response, body.input);
}

async function stream({ answer }: Intent, ask: Ask, response: ServerResponse): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const step of stepsOf(answer)) {
    if (response.destroyed) return;
    note(ask, step);
    if (answer.isSplit) {
      const bytes = Buffer.from(step.text);
      response.write(bytes.subarray(0, bytes.length >> 1));
      await new Promise(setImmediate);
      response.write(bytes.subarray(bytes.length >> 1));
    } else response.write(step.text);
    if (step.piece && answer.pauseMs > 0) await sleep(answer.pauseMs);
    if (step.finishes && answer.ending === "cut at the end") break;
  }
  if (answer.ending.startsWith("cut")) {
    // A reset discards what is not read yet, and all that is noted as written must arrive.
    await sleep(20);
    response.destroy();
  } else response.end();
}

/** Notes a step before it is written, so that the service never has more than the notes. */
function note(ask: Ask, { piece, report, finishes }: Step): void {
  if (piece) ask.written += 1;
  if (report !== undefined) ask.reports.push({ report, after: ask.written });
  if (finishes) ask.isFinished = true;
}

async function sendWhole({ answer }: Intent, ask: Ask, response: ServerResponse, input: unknown): Promise<void> {
  await sleep(answer.pauseMs * Math.min(20, answer.pieces.length));
  if (response.destroyed) return;
  const { text, report } = documentOf(answer, Array.isArray(input) ? input.length : 1);
  const isBroken = ["cut", "unfinished", "garbage"].includes(answer.ending);
  if (answer.ending === "error") {
    response.writeHead(200, { "content-type": "application/json" }).end('{"error":{"message":"it broke"}}');
    return;
  }
  ask.written = answer.pieces.length;
  if (report !== undefined) ask.reports.push({ report, after: ask.written });
  const bytes = Buffer.from(text);
  response.writeHead(200, { "content-type": "application/json", "content-length": bytes.length });
  if (isBroken) response.write(bytes.subarray(0, bytes.length - 3), () => response.destroy());
  else {
    ask.isFinished = true;
    response.end(bytes);
  }
}
