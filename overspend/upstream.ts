import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { type Act, countWords, idIn, piecesOf, type Script, usageText } from "./script.ts";

/** One call of the upstream, as far as it went. */
export interface UpstreamCall {
  id: string;
  act: Act;
  streamed: boolean;
  /** Words in the prompt that arrived. */
  promptTokens: number;
  /** Tokens that were written to the gateway. */
  emittedTokens: number;
  /** True once the whole answer was written, with its usage. */
  isComplete: boolean;
}

const BODY_BYTES_MAX = 1024 * 1024;
/** Time for written data to leave before a reset discards it. */
const FLUSH_MS = 30;

/** An OpenAI-compatible upstream that follows scripts and records what it emitted. */
export class ScriptedUpstream {
  readonly #scripts = new Map<string, Script>();
  readonly #calls = new Map<string, UpstreamCall[]>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  /** Listens on an address; rejects if it is taken. Returns the base URL that the gateway needs. */
  listen(host: string, port: number): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, host, () => {
        const address = this.#server.address();
        const bound = typeof address === "object" && address !== null ? address.port : port;
        resolve(`http://${host.includes(":") ? `[${host}]` : host}:${bound}/v1`);
      });
    });
  }

  /** Registers the script that a prompt with this id names. */
  register(id: string, script: Script): void {
    this.#scripts.set(id, script);
  }

  /** Lists the calls that arrived for a script, the oldest first. */
  callsOf(id: string): readonly UpstreamCall[] {
    return this.#calls.get(id) ?? [];
  }

  /** Lists all calls that arrived. */
  allCalls(): UpstreamCall[] {
    return [...this.#calls.values()].flat();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readBody(request);
    if (request.method !== "POST" || !request.url?.endsWith("/chat/completions")) {
      return sendJson(response, 404, '{"error":{"message":"This upstream has chat completions only."}}');
    }
    const { stream, messages } = JSON.parse(body) as { stream?: boolean; messages: { content: unknown }[] };
    const prompt = messages.map(({ content }) => textOf(content)).join("\n");
    const id = idIn(prompt);
    const script = id === undefined ? undefined : this.#scripts.get(id);
    if (id === undefined || script === undefined) {
      return sendJson(response, 400, '{"error":{"message":"The prompt names no script of this run."}}');
    }
    const calls = this.#calls.get(id) ?? [];
    this.#calls.set(id, calls);
    const act = script.acts[Math.min(calls.length, script.acts.length - 1)] ?? script.acts[0];
    const streamed = stream === true;
    const promptTokens = countWords(prompt);
    const call: UpstreamCall = { id, act, streamed, promptTokens, emittedTokens: 0, isComplete: false };
    calls.push(call);
    await perform(response, call, script.tokens);
  }
}

async function perform(response: ServerResponse, call: UpstreamCall, tokens: number): Promise<void> {
  const { act, streamed } = call;
  switch (act.kind) {
    case "status":
      return sendJson(response, act.status, `{"error":{"message":"The upstream answers ${act.status}."}}`);
    case "hang up":
      response.socket?.resetAndDestroy();
      return;
    case "page":
      response.writeHead(200, { "content-type": "text/html" }).end("<html><body>Welcome</body></html>");
      return;
    case "answer":
      return streamed ? streamAnswer(response, call, tokens, act) : sendAnswer(response, call, tokens, act);
    case "break":
      return streamed ? breakStream(response, call, act) : breakDocument(response, call, tokens, act);
  }
}

async function streamAnswer(
  response: ServerResponse,
  call: UpstreamCall,
  tokens: number,
  { usage, pauseMs = 0 }: Act & { kind: "answer" },
): Promise<void> {
  await streamPieces(response, call, tokens, pauseMs);
  if (response.destroyed) return;
  response.write(event(chunk(call.id, "{}", '"stop"')));
  const reported = usageText(usage, call.promptTokens, tokens);
  if (reported !== undefined) response.write(event(chunk(call.id, undefined, undefined, reported)));
  call.isComplete = true;
  response.end(event("[DONE]"));
}

async function sendAnswer(
  response: ServerResponse,
  call: UpstreamCall,
  tokens: number,
  { usage, pauseMs = 0 }: Act & { kind: "answer" },
): Promise<void> {
  // A stream and a document of the same script take the same time.
  if (pauseMs > 0) await sleep(pauseMs * tokens);
  if (response.destroyed || response.socket?.destroyed === true) return;
  call.emittedTokens = tokens;
  call.isComplete = true;
  sendJson(response, 200, documentOf(call.id, tokens, usageText(usage, call.promptTokens, tokens)));
}

async function breakStream(
  response: ServerResponse,
  call: UpstreamCall,
  { afterTokens, by }: Act & { kind: "break" },
): Promise<void> {
  await streamPieces(response, call, afterTokens, 0);
  if (by === "error") response.end(event('{"error":{"message":"The upstream failed.","type":"server_error"}}'));
  else if (by === "end") response.end();
  else {
    await sleep(FLUSH_MS);
    response.socket?.resetAndDestroy();
  }
}

async function breakDocument(
  response: ServerResponse,
  call: UpstreamCall,
  tokens: number,
  { afterTokens, by }: Act & { kind: "break" },
): Promise<void> {
  if (by === "error")
    return sendJson(response, 200, '{"error":{"message":"The upstream failed.","type":"server_error"}}');
  const whole = documentOf(call.id, tokens, usageText(undefined, call.promptTokens, tokens));
  const part = whole.slice(0, Math.ceil(whole.length / 2));
  call.emittedTokens = afterTokens;
  response.writeHead(200, {
    "content-type": "application/json",
    ...(by === "reset" && { "content-length": whole.length }),
  });
  if (by === "end") {
    response.end(part);
    return;
  }
  response.write(part);
  await sleep(FLUSH_MS);
  response.socket?.resetAndDestroy();
}

async function streamPieces(response: ServerResponse, call: UpstreamCall, tokens: number, pauseMs: number) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(event(chunk(call.id, '{"role":"assistant","content":""}')));
  for (const piece of piecesOf(tokens)) {
    if (pauseMs > 0) await sleep(pauseMs);
    if (response.destroyed) return;
    call.emittedTokens += 1;
    response.write(event(chunk(call.id, JSON.stringify({ content: piece }))));
  }
}

const event = (data: string) => `data: ${data}\n\n`;

function chunk(id: string, delta?: string, finishReason = "null", usage?: string): string {
  const choices = delta === undefined ? "" : `{"index":0,"delta":${delta},"finish_reason":${finishReason}}`;
  const reported = usage === undefined ? "" : `,"usage":${usage}`;
  return `{"id":"${id}","object":"chat.completion.chunk","created":0,"model":"overspend","choices":[${choices}]${reported}}`;
}

function documentOf(id: string, tokens: number, usage: string | undefined): string {
  const message = JSON.stringify({ role: "assistant", content: piecesOf(tokens).join("") });
  const choice = `{"index":0,"message":${message},"finish_reason":"stop"}`;
  const reported = usage === undefined ? "" : `,"usage":${usage}`;
  return `{"id":"${id}","object":"chat.completion","created":0,"model":"overspend","choices":[${choice}]${reported}}`;
}

function sendJson(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, { "content-type": "application/json" }).end(body);
}

/** Reads the text of a message's content, which gateways may send as parts. */
function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { text?: unknown }) => (typeof part.text === "string" ? part.text : "")).join("\n");
}

async function readBody(request: IncomingMessage): Promise<string> {
  let text = "";
  request.setEncoding("utf8");
  for await (const part of request) {
    text += part;
    if (text.length > BODY_BYTES_MAX) throw new Error("The gateway sent a body above 1 MiB");
  }
  return text;
}
