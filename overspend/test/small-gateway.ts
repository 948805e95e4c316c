/**
 * A gateway that is small enough to be read: keys with credits, and chat completions that are charged. Without a fault it is
 * right; each fault breaks one rule, as real gateways do. The tests of the benchmark use it to show that it finds faults.
 *
 * `node small-gateway.ts --port P --upstream URL --books FILE [--faults NAMES]`
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";
import { parseMicro, priceOf, toUnits } from "../money.ts";
import { countWords } from "../script.ts";

/** Faults by name, with what they do. */
const FAULTS: Record<string, string> = {
  "soft-cap": "admits a request while anything is left, without holding its price",
  "believe-usage": "charges what the upstream reports, whatever it is",
  "charge-cut": "charges a broken answer like a whole one",
  "free-cut": "charges nothing for a broken answer",
  "charge-retries": "charges the repetition of a broken answer in full",
  "late-books": "writes its books to the disk some time later",
};

/** Prices in micro-units. */
const PRICES = { input: 1n, output: 1000n };
const PROMPT_TOKENS_ADDED = 64;
/** Later than any kill of a test. */
const LATE_MS = 600_000;

interface Key {
  limit: bigint;
  spent: bigint;
  held: bigint;
}

interface Completion {
  key: Key;
  body: string;
  promptBytes: number;
  tokensMax: number;
  isStreamed: boolean;
  isRetry: boolean;
}

interface Upstream {
  usage?: Record<string, unknown> | null;
  error?: unknown;
  choices?: { delta?: { content?: string }; message?: { content?: string } }[];
}

class SmallGateway {
  readonly #keys = new Map<string, Key>();
  /** Charges of broken attempts, by key and body. */
  readonly #broken = new Map<string, bigint>();
  readonly #upstream: string;
  readonly #books: string;
  readonly #faults: ReadonlySet<string>;

  constructor(upstream: string, books: string, faults: readonly string[]) {
    this.#upstream = upstream;
    this.#books = books;
    const unknown = faults.find((fault) => !(fault in FAULTS));
    if (unknown !== undefined) throw new Error(`${unknown} is none of the faults ${Object.keys(FAULTS).join(", ")}`);
    this.#faults = new Set(faults);
    if (existsSync(books)) {
      for (const [name, limit, spent] of JSON.parse(readFileSync(books, "utf8")) as [string, string, string][]) {
        this.#keys.set(name, { limit: BigInt(limit), spent: BigInt(spent), held: 0n });
      }
    }
    if (this.#faults.has("late-books")) setInterval(() => this.#write(), LATE_MS).unref();
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    const [, name] = /^\/keys\/([\w-]+)/.exec(request.url ?? "") ?? [];
    if (request.url === "/keys") this.#createKey(response, body);
    else if (name !== undefined) this.#changeKey(response, name, request.method === "POST" ? body : undefined);
    else if (request.url === "/v1/chat/completions") await this.#authenticate(request, body, response);
    else sendJson(response, 404, {});
  }

  async #authenticate(request: IncomingMessage, body: string, response: ServerResponse): Promise<void> {
    const key = this.#keys.get(request.headers.authorization?.replace("Bearer ", "") ?? "");
    if (key === undefined) {
      sendJson(response, 401, { error: { code: "invalid_key" } });
      return;
    }
    const { messages, max_tokens: tokensMax, stream } = JSON.parse(body);
    const isRetry = Number(request.headers["x-stainless-retry-count"]) > 0;
    const promptBytes = Buffer.byteLength(messages[0].content);
    await this.#complete({ key, body, promptBytes, tokensMax, isStreamed: stream === true, isRetry }, response);
  }

  #createKey(response: ServerResponse, body: string): void {
    const { name, limit } = JSON.parse(body) as { name: string; limit: string };
    const key = name.replaceAll(" ", "-");
    this.#keys.set(key, { limit: parseMicro(limit) ?? 0n, spent: 0n, held: 0n });
    this.#write();
    sendJson(response, 201, { key });
  }

  #changeKey(response: ServerResponse, name: string, body: string | undefined): void {
    const key = this.#keys.get(name);
    if (key === undefined) {
      sendJson(response, 404, {});
      return;
    }
    if (body !== undefined) {
      key.limit = parseMicro((JSON.parse(body) as { limit: string }).limit) ?? 0n;
      this.#write();
    }
    sendJson(response, 200, { spent: toUnits(key.spent), held: toUnits(key.held) });
  }

  async #complete(completion: Completion, response: ServerResponse): Promise<void> {
    const { key, promptBytes, tokensMax, isStreamed, body } = completion;
    const hold = this.#faults.has("soft-cap") ? 0n : priceOf(PRICES, promptBytes + PROMPT_TOKENS_ADDED, tokensMax);
    if (key.spent >= key.limit || key.spent + key.held + hold > key.limit) {
      sendJson(response, 402, { error: { code: "insufficient_credits" } });
      return;
    }
    key.held += hold;
    const abort = new AbortController();
    response.on("close", () => abort.abort());
    try {
      const answer = await fetch(`${this.#upstream}/chat/completions`, {
        ...{ method: "POST", headers: { "content-type": "application/json" }, body, signal: abort.signal },
      });
      if (!answer.ok) throw new Error(`the upstream answered ${answer.status}`);
      await (isStreamed ? this.#relay(completion, answer, response) : this.#forward(completion, answer, response));
    } catch {
      if (!response.headersSent) sendJson(response, 502, { error: { code: "upstream_error" } });
      // Ended and not destroyed, so that what was charged also arrives.
      else response.end('data: {"error":{"code":"upstream_error"}}\n\n');
    } finally {
      key.held -= hold;
    }
  }

  async #forward(completion: Completion, answer: Response, response: ServerResponse): Promise<void> {
    const document = (await answer.json()) as Upstream;
    const text = document.choices?.[0]?.message?.content;
    if (text === undefined) throw new Error("the upstream sent no answer");
    this.#charge(completion, this.#costOf(completion, countWords(text), document.usage));
    sendJson(response, 200, document);
  }

  async #relay(completion: Completion, answer: Response, response: ServerResponse): Promise<void> {
    let text = "";
    let rest = "";
    let usage: Upstream["usage"];
    let isComplete = false;
    try {
      if (answer.headers.get("content-type") !== "text/event-stream") throw new Error("the upstream sent no stream");
      const decoder = new TextDecoder();
      for await (const part of answer.body ?? []) {
        const events = (rest + decoder.decode(part, { stream: true })).split("\n\n");
        rest = events.pop() ?? "";
        for (const event of events) {
          const data = event.slice("data: ".length);
          if (data === "[DONE]") {
            isComplete = true;
            this.#charge(completion, this.#costOf(completion, countWords(text), usage));
            response.end("data: [DONE]\n\n");
            return;
          }
          const chunk = JSON.parse(data) as Upstream;
          if (chunk.error !== undefined) throw new Error("the upstream failed");
          usage = chunk.usage ?? usage;
          if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
          if (response.destroyed) throw new Error("the client has left");
          text += chunk.choices?.[0]?.delta?.content ?? "";
          response.write(`${event}\n\n`);
        }
      }
      throw new Error("the stream ended early");
    } finally {
      if (!isComplete && text !== "") this.#chargeBroken(completion, countWords(text));
    }
  }

  #chargeBroken(completion: Completion, words: number): void {
    if (this.#faults.has("free-cut")) return;
    const tokens = this.#faults.has("charge-cut") ? completion.tokensMax : words;
    const cost = priceOf(PRICES, completion.promptBytes, tokens);
    this.#charge(completion, cost);
    this.#broken.set(completion.body, (this.#broken.get(completion.body) ?? 0n) + cost);
  }

  #costOf({ promptBytes }: Completion, words: number, usage: Upstream["usage"]): bigint {
    const prompt = Number(usage?.prompt_tokens ?? 0);
    const answer = Number(usage?.completion_tokens ?? 0);
    if (this.#faults.has("believe-usage")) {
      return priceOf(PRICES, Math.trunc(prompt) || 0, Math.trunc(answer) || 0);
    }
    const isBelievable = answer === words && prompt >= 0 && prompt <= promptBytes + PROMPT_TOKENS_ADDED;
    return isBelievable ? priceOf(PRICES, prompt, answer) : priceOf(PRICES, promptBytes, words);
  }

  #charge({ key, body, isRetry }: Completion, cost: bigint): void {
    const paid = isRetry && !this.#faults.has("charge-retries") ? (this.#broken.get(body) ?? 0n) : 0n;
    this.#broken.delete(body);
    key.spent += cost > paid || cost < 0n ? cost - paid : 0n;
    if (!this.#faults.has("late-books")) this.#write();
  }

  #write(): void {
    const rows = [...this.#keys].map(([name, { limit, spent }]) => [name, String(limit), String(spent)]);
    // A rename, so that a kill leaves the old books or the new ones.
    writeFileSync(`${this.#books}.new`, JSON.stringify(rows));
    renameSync(`${this.#books}.new`, this.#books);
  }
}

function sendJson(response: ServerResponse, status: number, document: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(document));
}

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    upstream: { type: "string", default: "" },
    books: { type: "string", default: "books.json" },
    faults: { type: "string", default: "" },
  },
});
const gateway = new SmallGateway(
  values.upstream,
  values.books,
  values.faults.split(",").filter((fault) => fault !== ""),
);
const server = createServer((request, response) => {
  gateway.serve(request, response).catch(() => response.destroy());
});
server.listen(Number(values.port), "127.0.0.1");
