import { appendFileSync } from "node:fs";
import { Agent, type ClientRequest, type IncomingMessage, request as sendRequest } from "node:http";
import { join } from "node:path";
import { type ClientLine, type ReportedUsage, type Script, trialOf, WORD } from "./script.ts";

export const MODEL = "metered";

export interface Call {
  script: Script;
  streamed: boolean;
  organization: { id: string; token: string };
  /** Number of pieces after which the client disconnects. */
  leavesAfterWords?: number;
  /** True if the client does not read the body until it is released. */
  readsLater?: Promise<unknown>;
  idempotencyKey?: string;
  /** True for a repeated request, which has a log of its own. */
  isRepeated?: boolean;
}

/** Returns the trial name under which a repeated request is logged. */
export function repeatedOf(trial: string): string {
  return `${trial}.repeated`;
}

/** A running request. */
export interface Sent {
  call: Call;
  /** Resolves when the request has ended in any way; never rejects. */
  ended: Promise<ClientLine["got"]>;
  /** Resolves with the status, or with undefined if there was none. */
  status: Promise<number | undefined>;
  /** Pieces received so far. */
  words(): number;
  leave(): void;
}

/** Sends completions, each on its own connection, and logs the responses with their times to a file. */
export class Clients {
  readonly #directory: string;
  readonly #agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY });

  constructor(directory: string) {
    this.#directory = directory;
  }

  send(baseUrl: string, call: Call): Sent {
    const { script, streamed, organization } = call;
    const trial = trialOf(script.id);
    const path = join(this.#directory, `${call.isRepeated ? repeatedOf(trial) : trial}.clients.jsonl`);
    const log = (line: Omit<ClientLine, "id" | "at">) => {
      appendFileSync(path, `${JSON.stringify({ id: script.id, at: Date.now(), ...line } satisfies ClientLine)}\n`);
    };
    log({ got: "nothing yet", request: { streamed, organizationId: organization.id, script } });
    const outgoing = sendRequest(`${baseUrl}/chat/completions`, {
      method: "POST",
      agent: this.#agent,
      headers: {
        authorization: `Bearer ${organization.token}`,
        "content-type": "application/json",
        ...(call.idempotencyKey !== undefined && { "idempotency-key": call.idempotencyKey }),
      },
    });
    outgoing.end(bodyOf(call));
    return follow(outgoing, call, log);
  }
}

function bodyOf({ script, streamed }: Call): string {
  return JSON.stringify({
    model: MODEL,
    messages: [{ role: "user", content: JSON.stringify(script) }],
    max_tokens: 4096,
    stream: streamed,
    // The books contain it with the hold and its events.
    metadata: { request: script.id },
  });
}

function follow(outgoing: ClientRequest, call: Call, log: (line: Omit<ClientLine, "id" | "at">) => void): Sent {
  const ended = Promise.withResolvers<ClientLine["got"]>();
  const status = Promise.withResolvers<number | undefined>();
  let isOver = false;
  let words = 0;
  const end = (got: ClientLine["got"], fields: Partial<ClientLine> = {}) => {
    if (isOver) return;
    isOver = true;
    log({ got, ...fields });
    status.resolve(undefined);
    ended.resolve(got);
  };
  const leave = () => {
    end("gave up");
    outgoing.destroy();
  };
  outgoing.on("error", () => end("cut"));
  outgoing.on("response", async (incoming) => {
    log({ got: "status", status: incoming.statusCode });
    status.resolve(incoming.statusCode);
    await call.readsLater;
    const read = isEventStream(incoming) ? readStream : readDocument;
    try {
      await read(incoming, {
        end,
        words: (count) => {
          log({ got: "word", words: count });
          words += count;
          if (words >= (call.leavesAfterWords ?? Number.POSITIVE_INFINITY)) leave();
        },
        usage: (usage) => log({ got: "usage", usage }),
      });
    } catch {
      end("cut");
    }
    end("cut");
  });
  return { call, ended: ended.promise, status: status.promise, words: () => words, leave };
}

function isEventStream(incoming: IncomingMessage): boolean {
  return incoming.headers["content-type"]?.startsWith("text/event-stream") === true;
}

interface Heard {
  end(got: ClientLine["got"], fields?: Partial<ClientLine>): void;
  words(count: number): void;
  usage(usage: ReportedUsage): void;
}

interface Answer {
  error?: { code: string };
  usage?: ReportedUsage | null;
  choices?: { delta?: { content?: string }; message?: { content: string } }[];
}

async function readStream(incoming: IncomingMessage, heard: Heard): Promise<void> {
  let rest = "";
  incoming.setEncoding("utf8");
  for await (const text of incoming) {
    const events = (rest + text).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) readEvent(event, heard);
  }
}

function readEvent(event: string, heard: Heard): void {
  if (!event.startsWith("data: ")) return;
  const data = event.slice("data: ".length);
  if (data === "[DONE]") heard.end("all");
  else readAnswer(JSON.parse(data), heard);
}

async function readDocument(incoming: IncomingMessage, heard: Heard): Promise<void> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const part of incoming) text += part;
  readAnswer(JSON.parse(text), heard);
  heard.end("all");
}

function readAnswer({ error, usage, choices }: Answer, heard: Heard): void {
  if (error !== undefined) heard.end("error", { code: error.code });
  const content = choices?.[0]?.delta?.content ?? choices?.[0]?.message?.content ?? "";
  const words = content.split(WORD).length - 1;
  if (words > 0) heard.words(words);
  if (usage !== undefined && usage !== null) heard.usage(usage);
}
