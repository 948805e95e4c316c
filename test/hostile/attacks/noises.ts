import { once } from "node:events";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { cookieOf, FROM_CONSOLE } from "../../support/admin.ts";
import { answersIn, dial } from "../raw-http.ts";
import { type Customer, type CustomerTerms, required, type Target } from "./attack.ts";

/** A customer that makes a noise until the signal is aborted. */
export interface NoiseMaker extends Customer {
  target: Target;
  signal: AbortSignal;
  /** Called with the status of each answer. */
  note(status: number): void;
}

/** The worst that one customer can do to a resource that all customers share. */
export interface Noise {
  /** Completes a sentence that begins with "A customer that". */
  does: string;
  /** A status of the customer's own requests which shows that they reach the resource. */
  reaches: number;
  terms?: CustomerTerms;
  /** Differs where the noise is about an upstream. */
  victim?: { model: "fragileModel" | "pairModel"; content?: string };
  make(maker: NoiseMaker): Promise<unknown>;
}

export const UNLIMITED: CustomerTerms = {
  credits: 100_000,
  limits: { requests_per_minute: 1_000_000, tokens_per_minute: 1_000_000_000, concurrent_requests: 1_000 },
};
/** Requests that the customer sends at the same time. */
const AT_ONCE = 20;
const CHARACTERS = 262_000;
const FIRST_IDEOGRAPH = 0x4e00;
const IDEOGRAPHS = 20_992;
/** More than three quarters of the connections of the service that is attacked. */
const CONNECTIONS = 1_600;
const CONNECTIONS_AT_ONCE = 50;
const LARGE_BYTES = 8 * 1024 * 1024;
const CONVERSATION_BYTES = 64 * 1024;
const INPUTS = 512;
const KEPT_BYTES = 2 * 1024 * 1024;
const RESPONSES = "/v1/responses";

/** Sends requests, each after the answer to the one before, in several sequences. */
async function repeat(
  { signal, note }: NoiseMaker,
  send: (turn: number) => Promise<Response>,
  { atOnce = AT_ONCE, pauseMs = 0 } = {},
): Promise<void> {
  let turn = 0;
  const sequence = async () => {
    while (!signal.aborted) {
      turn += 1;
      const answer = await send(turn).catch(() => undefined);
      await answer?.arrayBuffer().catch(() => undefined);
      if (answer !== undefined) note(answer.status);
      await sleep(pauseMs);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, sequence));
}

/** Sends a body, which is JSON text: one of megabytes is serialized once. */
function postText(
  { target, token, signal }: NoiseMaker,
  path: string,
  body: string,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${target.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}`, ...headers },
    body,
    signal,
  });
}

const CHAT = "/v1/chat/completions";

function question({ target }: NoiseMaker, content: string, fields: object = {}): string {
  const messages = [{ role: "user", content }];
  return JSON.stringify({ model: required(target, "fragileModel"), messages, max_tokens: 64, ...fields });
}

/** Asks the fragile model the same thing again and again. */
function keepAsking(maker: NoiseMaker, content: string, { fields = {}, ...pace }: AskOptions = {}): Promise<void> {
  const body = question(maker, content, fields);
  return repeat(maker, () => postText(maker, CHAT, body), pace);
}
interface AskOptions {
  fields?: object;
  atOnce?: number;
  pauseMs?: number;
}

/** Text that is dear to tokenize. */
function ideographs(): string {
  const at = (index: number) => FIRST_IDEOGRAPH + ((index * 7_919 + Math.floor(index / IDEOGRAPHS) * 31) % IDEOGRAPHS);
  return Array.from({ length: CHARACTERS }, (_, index) => String.fromCodePoint(at(index))).join("");
}

/** Signs in to the console, and reads these pages again and again. */
async function read(maker: NoiseMaker, paths: readonly string[]): Promise<void> {
  const { target, token, signal } = maker;
  const signedIn = await fetch(`${target.url}/admin/v1/session`, {
    method: "POST",
    headers: { "content-type": "application/json", ...FROM_CONSOLE },
    body: JSON.stringify({ token }),
  });
  const headers = { ...FROM_CONSOLE, cookie: cookieOf(signedIn) };
  const read = (turn: number) => fetch(`${target.url}/admin/v1${paths[turn % paths.length]}`, { headers, signal });
  await repeat(maker, read);
}

/** Sends long inputs, and continues each response once, for which what was kept of it is read. */
async function continueResponses(maker: NoiseMaker): Promise<void> {
  const model = required(maker.target, "longModel");
  const ask = (input: string, previous?: string) => {
    const body = JSON.stringify({ model, input, previous_response_id: previous, max_output_tokens: 64 });
    return postText(maker, RESPONSES, body);
  };
  const input = "x".repeat(KEPT_BYTES);
  await repeat(maker, async () => {
    const answer = await ask(input);
    const { id } = (await answer.json()) as { id?: string };
    return id === undefined ? answer : ask("go on", id);
  });
}

/** Opens connections and keeps them, and goes on to open others that send nothing. */
async function connect({ target, token, signal, note }: NoiseMaker): Promise<void> {
  const request = `GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const sockets: Socket[] = [];
  const open = async (bytes: string) => {
    const some = Array.from({ length: CONNECTIONS_AT_ONCE }, () => dial(target.url));
    sockets.push(...some);
    await Promise.all(some.map((socket) => once(socket, "connect", { signal }).catch(() => undefined)));
    for (const socket of some) {
      socket.on("data", (data: Buffer) => note(answersIn(data)[0]?.status ?? 0));
      socket.write(bytes);
    }
    await sleep(20);
  };
  try {
    while (!signal.aborted && sockets.length < CONNECTIONS) await open(request);
    while (!signal.aborted) await open("GET /");
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

export const NOISES: readonly Noise[] = [
  {
    does: "has answers to 262,000 different characters counted",
    reaches: 200,
    make: (maker) => keepAsking(maker, ideographs(), { fields: { stream: true }, atOnce: 5 }),
  },
  {
    does: "counts the tokens of 262,000 different characters in 20 requests at a time",
    reaches: 200,
    make: (maker) => {
      const body = question(maker, ideographs());
      return repeat(maker, () => postText(maker, "/v1/messages/count_tokens", body));
    },
  },
  {
    does: "makes a provider fail",
    reaches: 502,
    make: (maker) => keepAsking(maker, "status 500", { atOnce: 2, pauseMs: 200 }),
  },
  {
    does: "makes a provider ask for a pause of years",
    reaches: 503,
    // A pause is for everybody: another route answers meanwhile.
    victim: { model: "pairModel" },
    make: (maker) => keepAsking(maker, "status 429 retry-after 99999999", { atOnce: 2, pauseMs: 200 }),
  },
  {
    does: "has its requests retried without end",
    reaches: 200,
    victim: { model: "pairModel", content: "status 503" },
    make: (maker) => {
      const model = required(maker.target, "pairModel");
      const bodies = ["status 500", "hello"].map((content) => question(maker, content, { model }));
      // In turn, so that its circuit stays closed and every second request is retried.
      return repeat(maker, (turn) => postText(maker, CHAT, bodies[turn % 2] ?? ""), { atOnce: 1 });
    },
  },
  {
    does: "holds all of its credits",
    reaches: 429,
    terms: { ...UNLIMITED, credits: 0.05 },
    make: (maker) => keepAsking(maker, "wait 300", { fields: { max_tokens: 4_096 }, atOnce: 50, pauseMs: 100 }),
  },
  {
    does: "fills the queue of conversations",
    reaches: 200,
    terms: { ...UNLIMITED, keepsConversations: true },
    make: (maker) => keepAsking(maker, "x".repeat(CONVERSATION_BYTES)),
  },
  {
    does: "has megabytes of responses kept, and continues them",
    reaches: 200,
    make: continueResponses,
  },
  {
    does: "reads the reports of the console in 20 requests at a time",
    reaches: 200,
    make: (maker) => {
      const statement = `/organizations/${maker.organizationId}/statement?limit=100`;
      return read(maker, ["/overview", "/requests?limit=100", "/tokens?limit=100", statement]);
    },
  },
  {
    does: "exports its statement in 20 requests at a time",
    reaches: 429,
    make: (maker) => read(maker, [`/organizations/${maker.organizationId}/statement.csv`]),
  },
  {
    does: "asks for megabytes of embeddings",
    reaches: 200,
    make: (maker) => {
      const input = Array.from({ length: INPUTS }, (_, index) => `input ${index}`);
      const body = JSON.stringify({ model: required(maker.target, "embeddingModel"), input });
      return repeat(maker, () => postText(maker, "/v1/embeddings", body), { atOnce: 3 });
    },
  },
  {
    does: "sends each request with an Idempotency-Key of its own",
    reaches: 200,
    make: (maker) => {
      const body = question(maker, "hello");
      const key = (turn: number) => ({ "idempotency-key": `${maker.organizationId}-${turn}` });
      return repeat(maker, (turn) => postText(maker, CHAT, body, key(turn)));
    },
  },
  {
    does: "opens more connections than its share",
    reaches: 429,
    make: connect,
  },
  {
    does: "sends bodies of 8 MiB",
    reaches: 400,
    // Refused after it was read as a whole, so that it is the service that works and not the provider.
    make: (maker) => keepAsking(maker, "x ".repeat(LARGE_BYTES / 2), { fields: { max_tokens: 1_000_000_000 } }),
  },
  {
    does: "has bodies of 8 MiB answered",
    reaches: 200,
    make: (maker) => {
      const fields = { model: required(maker.target, "longModel") };
      return keepAsking(maker, "x ".repeat(LARGE_BYTES / 2), { fields });
    },
  },
  {
    does: "is refused for a different reason each time",
    reaches: 404,
    make: (maker) => {
      return repeat(maker, (turn) => postText(maker, CHAT, question(maker, "hello", { model: `none-${turn}` })));
    },
  },
  {
    does: "goes on above its limits",
    reaches: 429,
    terms: { credits: 1_000, limits: { requests_per_minute: 10 } },
    make: (maker) => keepAsking(maker, "hello"),
  },
];
