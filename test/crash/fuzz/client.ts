import { Agent, type IncomingMessage, request as sendRequest } from "node:http";
import type { Call, Inbound, Intent, Repetition } from "./intent.ts";

const agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY });
const PATHS: Record<Inbound, string> = {
  chat: "/chat/completions",
  messages: "/messages",
  responses: "/responses",
  embeddings: "/embeddings",
  count_tokens: "/messages/count_tokens",
};
const MARK = /<r\w+\.\d+>/g;

/** The last event of a complete stream on each wire. */
const STREAM_END: Record<Inbound, RegExp> = {
  chat: /^data: \[DONE\]$/m,
  messages: /^event: message_stop$/m,
  responses: /^event: response\.(completed|incomplete)$/m,
  embeddings: /^$/,
  count_tokens: /^$/,
};
const STREAM_ERROR = /^(event: (error|response\.failed)|data: \{"error":)/m;

/** Sends a request, or its repetition, and follows it to its end. Never rejects. */
export function send(baseUrl: string, node: number, intent: Intent, repetition: Call["repetition"]): Promise<Call> {
  const { tokenIndex, account, key, maxCost } = intent;
  const token = account.tokens[repetition === "sibling" ? (tokenIndex + 1) % 2 : tokenIndex];
  if (token === undefined) throw new Error("an account has two tokens");
  const inbound = inboundOf(intent, repetition);
  const call: Call = {
    repetition,
    node,
    tokenId: token.tokenId,
    sentAt: Date.now(),
    endedAt: 0,
    ...{ status: undefined, requestId: undefined, text: "", end: undefined },
  };
  intent.calls.push(call);
  return new Promise((resolve) => {
    const end = (how: NonNullable<Call["end"]>) => {
      if (call.end !== undefined) return;
      call.end = how;
      call.endedAt = Date.now();
      resolve(call);
    };
    const outgoing = sendRequest(`${baseUrl}${PATHS[inbound]}`, {
      method: "POST",
      agent,
      headers: {
        authorization: `Bearer ${token.token}`,
        "content-type": "application/json",
        ...(key !== null && { "idempotency-key": key }),
        ...(maxCost !== null && { "x-tollgate-max-cost": maxCost }),
      },
    });
    const leave = () => {
      end("left");
      outgoing.destroy();
    };
    const { leaving } = intent;
    if (leaving !== null && repetition === "first" && "afterMs" in leaving) setTimeout(leave, leaving.afterMs);
    outgoing.on("error", () => end("cut"));
    outgoing.on("response", (incoming) => void follow(incoming, { intent, inbound, call, end, leave }));
    outgoing.end(JSON.stringify(bodyOf(intent, inbound, repetition)));
  });
}

interface Followed {
  intent: Intent;
  inbound: Inbound;
  call: Call;
  end: (how: NonNullable<Call["end"]>) => void;
  leave: () => void;
}

async function follow(incoming: IncomingMessage, { intent, inbound, call, end, leave }: Followed): Promise<void> {
  call.status = incoming.statusCode;
  call.requestId = String(incoming.headers["x-request-id"]);
  incoming.setEncoding("utf8");
  const isStream = incoming.headers["content-type"]?.startsWith("text/event-stream") === true;
  const { leaving } = intent;
  const most =
    leaving !== null && call.repetition === "first" && "afterMarks" in leaving ? leaving.afterMarks : undefined;
  try {
    for await (const text of incoming) {
      if (call.end !== undefined) return;
      call.text += text;
      if (most !== undefined && marksIn(call.text).size >= most) leave();
    }
  } catch {
    end("cut");
  }
  if (!isStream) end(call.status === 200 ? "complete" : "error");
  else if (STREAM_END[inbound].test(call.text)) end("complete");
  else end(STREAM_ERROR.test(call.text) ? "error" : "cut");
}

/** Returns the marks of the texts that a client received. */
export function marksIn(text: string): Set<string> {
  return new Set(text.match(MARK));
}

/** Returns the endpoint that a call of a request is for. */
export function inboundOf({ inbound }: Intent, repetition: Call["repetition"]): Inbound {
  if (repetition !== "other endpoint") return inbound;
  return inbound === "chat" ? "responses" : "chat";
}

function bodyOf(intent: Intent, inbound: Inbound, repetition: Repetition | "first"): object {
  const { model, isStreamed: stream, maxTokens } = intent;
  const prompt = repetition === "other body" ? `${intent.prompt} Another one.` : intent.prompt;
  if (inbound === "embeddings") return { model, input: prompt };
  const messages = [{ role: "user", content: prompt }];
  if (inbound === "count_tokens") return { model, messages };
  if (inbound === "responses") return { model, input: prompt, max_output_tokens: maxTokens, stream };
  return { model, messages, max_tokens: maxTokens, stream };
}
