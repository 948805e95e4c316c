import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

export interface UpstreamRequest {
  body: { model: string; stream?: boolean; [field: string]: unknown };
  headers: IncomingMessage["headers"];
  response: ServerResponse;
  /** Words of a streamed answer that were sent so far. */
  words: number;
  /** Resolves with the time when the caller's connection is gone. */
  closed: Promise<number>;
}

export type Behaviour = (request: UpstreamRequest) => void | Promise<void>;

export interface Upstream {
  baseUrl: string;
  /** The configuration of a provider `up` that calls this upstream. */
  provider: { id: string; kind: string; baseUrl: string; apiKey: string };
  /** Sets the behaviour for a model name. */
  behave(model: string, behaviour: Behaviour): void;
  requests: UpstreamRequest[];
  close(): Promise<void>;
}

/** Starts an upstream that speaks OpenAI's protocol. The test sets its behaviour for each model name. */
export async function startUpstream(): Promise<Upstream> {
  const behaviours = new Map<string, Behaviour>();
  const requests: UpstreamRequest[] = [];
  const server = createServer(async (request, response) => {
    const bytes = await buffer(request).catch(() => undefined);
    // The caller gave up before its request had arrived.
    if (bytes === undefined) return;
    const closed = new Promise<number>((resolve) => response.once("close", () => resolve(Date.now())));
    const received = { body: await readBody(request, bytes), headers: request.headers, response, words: 0, closed };
    requests.push(received);
    const behaviour = behaviours.get(received.body.model);
    if (behaviour === undefined)
      sendJson(response, 404, { error: { message: "no such model", code: "model_not_found" } });
    else await behaviour(received);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const baseUrl = `http://127.0.0.1:${port}/v1`;
  return {
    baseUrl,
    provider: { id: "up", kind: "openai-compatible", baseUrl, apiKey: "k" },
    behave: (model, behaviour) => behaviours.set(model, behaviour),
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Reads JSON, or the fields of a form. */
async function readBody({ headers }: IncomingMessage, bytes: Buffer): Promise<UpstreamRequest["body"]> {
  const type = headers["content-type"] ?? "";
  if (!type.startsWith("multipart/")) return JSON.parse(bytes.toString() || "{}");
  const form = await new Response(new Uint8Array(bytes), { headers: { "content-type": type } }).formData();
  return Object.fromEntries(form) as UpstreamRequest["body"];
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

/** Begins to stream an answer, and then closes the connection. */
export const breaking: Behaviour = ({ response }) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const choices = [{ index: 0, delta: { content: "Half an" }, finish_reason: null }];
  response.write(`data: ${JSON.stringify({ choices })}\n\n`, () => setTimeout(() => response.destroy(), 20));
};

export interface Answer {
  words: string[];
  usage?: Record<string, unknown>;
  finishReason?: string;
  /** Pause between two events of a stream. */
  pauseMs?: number;
}

/** Answers in OpenAI's format, streamed if the request is. */
export function answering({ words, usage, finishReason = "stop", pauseMs = 0 }: Answer): Behaviour {
  return async (request) => {
    const { body, response } = request;
    const common = { id: "chatcmpl-upstream", created: 1_700_000_000, model: `${body.model}-2026-01-01` };
    if (body.stream !== true) {
      const message = { role: "assistant", content: words.join("") };
      const choices = [{ index: 0, message, finish_reason: finishReason }];
      sendJson(response, 200, { ...common, object: "chat.completion", choices, usage });
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (fields: object) =>
      response.write(`data: ${JSON.stringify({ ...common, object: "chat.completion.chunk", ...fields })}\n\n`);
    event({ choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }] });
    for (const content of words) {
      if (response.destroyed) return;
      request.words += 1;
      event({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    event({ choices: [{ index: 0, delta: {}, finish_reason: finishReason }] });
    if (usage !== undefined) event({ choices: [], usage });
    response.end("data: [DONE]\n\n");
  };
}
