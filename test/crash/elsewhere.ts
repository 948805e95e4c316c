import { setTimeout as sleep } from "node:timers/promises";

const RUNNING = 2;
const PAUSE_MS = 100;
/** Requests per minute of the token whose limit all nodes share, and by how much it may be exceeded. */
export const LIMIT = 30;
const EXCESS = 0.01;
const LIMITED_PAUSE_MS = 200;
const MINUTE_MS = 60_000;
/** Last lines of complete streams. */
const STREAM_END = /data: \[DONE\]|"type":"response\.completed"|"type":"message_stop"/;

interface Request {
  path: string;
  body?: { stream?: boolean; [field: string]: unknown };
  /** True if a complete answer is booked as a request. */
  isBooked?: boolean;
}

interface Answer {
  path: string;
  /** Undefined if the connection ended without a status. */
  status: number | undefined;
  isComplete: boolean;
  sentAt: number;
  endedAt: number;
}

const INPUT = "word ".repeat(20);
const MESSAGES = [{ role: "user", content: INPUT }];
const REQUESTS: readonly Request[] = [
  { path: "/models" },
  { path: "/models/sandbox/echo" },
  { path: "/usage" },
  ...[false, true].flatMap((stream): Request[] => [
    { path: "/responses", body: { model: "sandbox/echo", input: INPUT, stream }, isBooked: true },
    { path: "/messages", body: { model: "sandbox/echo", messages: MESSAGES, max_tokens: 100, stream }, isBooked: true },
  ]),
  { path: "/messages/count_tokens", body: { model: "sandbox/echo", messages: MESSAGES } },
  { path: "/embeddings", body: { model: "sandbox/embed", input: INPUT }, isBooked: true },
];

/** Requests to all endpoints but chat completions, and of a token with a limit, one after the other. */
export class Elsewhere {
  /** Answers that were not complete. */
  readonly failed: Answer[] = [];
  complete = 0;
  /** Complete answers that must be booked. */
  booked = 0;
  readonly #baseUrl: string;
  readonly #calls: Promise<void>[];
  /** Requests of the limited token that passed. */
  readonly passed: Answer[] = [];
  #isOver = false;

  constructor(baseUrl: string, token: string, limited: string) {
    this.#baseUrl = baseUrl;
    this.#calls = Array.from({ length: RUNNING }, () => this.#callAll(token));
    this.#calls.push(this.#callLimited(limited));
  }

  /** Resolves when all requests have ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#calls);
  }

  /** Throws where the requests of the limited token that passed are not as many as its limit lets pass. */
  checkLimit(): void {
    const [first] = this.passed;
    const minutes = ((this.passed.at(-1)?.endedAt ?? 0) - (first?.sentAt ?? 0)) / MINUTE_MS;
    const passed = this.passed.length;
    const windows = Math.floor(minutes) + 1;
    if (passed < LIMIT * Math.max(1, windows - 1))
      throw new Error(`only ${passed} requests passed in ${minutes} minutes`);
    if (passed > LIMIT * windows * (1 + EXCESS)) throw new Error(`${passed} requests passed in ${minutes} minutes`);
  }

  async #callAll(token: string): Promise<void> {
    for (let index = 0; !this.#isOver; index += 1) {
      const request = REQUESTS[index % REQUESTS.length] as Request;
      const answer = await this.#call(request, token);
      if (!answer.isComplete) this.failed.push(answer);
      else this.complete += 1;
      if (answer.isComplete && request.isBooked) this.booked += 1;
      await sleep(PAUSE_MS);
    }
  }

  async #callLimited(token: string): Promise<void> {
    while (!this.#isOver) {
      const answer = await this.#call({ path: "/models" }, token);
      if (answer.isComplete) this.passed.push(answer);
      else if (answer.status !== 429) this.failed.push(answer);
      await sleep(LIMITED_PAUSE_MS);
    }
  }

  async #call({ path, body }: Request, token: string): Promise<Answer> {
    const sentAt = Date.now();
    const answer = await fetch(`${this.#baseUrl}${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }).catch(() => undefined);
    const text = await answer?.text().catch(() => undefined);
    const hasEnd = text !== undefined && (body?.stream !== true || STREAM_END.test(text));
    const isComplete = answer?.status === 200 && hasEnd;
    return { path, status: answer?.status, isComplete, sentAt, endedAt: Date.now() };
  }
}
