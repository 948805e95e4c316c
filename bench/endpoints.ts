import {
  ANSWER_TEXT,
  EMBEDDING_DIMENSIONS,
  MODEL_EMBEDDING,
  MODEL_EMBEDDING_BASE64,
  MODEL_STREAMED,
  MODEL_UNSTREAMED,
  TOKENS_MAX,
} from "./payload.ts";

/** An endpoint that is measured. */
interface Endpoint {
  /** Its path below `/v1/`. */
  path: string;
  /** Returns the fields of a request; an endpoint without a body is read with GET, and charges nothing. */
  body?: (question: string, streamed: boolean) => object;
  /** Text of the last event of a streamed answer, and a pattern of its first piece of text. */
  stream?: { last: string; firstToken: string };
  /** Checks that an answer is the upstream's, or the document of the service. */
  isRight(text: string, streamed: boolean): boolean;
}

const SYSTEM = "You are the help desk of a toll road. Answer in two sentences, friendly and exact.";
const ASIDE = "I have read the guide and still wonder. ";
const QUESTION = `What does the gate do? ${ASIDE.repeat(4)}`;

const common = (streamed: boolean) => {
  return { model: streamed ? MODEL_STREAMED : MODEL_UNSTREAMED, temperature: 0.7, stream: streamed };
};
const user = (content: string) => ({ role: "user", content });

const CHAT: Endpoint = {
  path: "chat/completions",
  body: (question, streamed) => {
    const messages = [{ role: "system", content: SYSTEM }, user(question)];
    return { ...common(streamed), messages, max_tokens: TOKENS_MAX };
  },
  stream: { last: "[DONE]", firstToken: '"content":"[^"]' },
  isRight: (text, streamed) => contentOf(text, streamed, CHAT) === ANSWER_TEXT,
};

const RESPONSES: Endpoint = {
  path: "responses",
  body: (question, streamed) => {
    return { ...common(streamed), instructions: SYSTEM, input: [user(question)], max_output_tokens: TOKENS_MAX };
  },
  stream: { last: "response.completed", firstToken: "response.output_text.delta" },
  isRight: (text, streamed) => contentOf(text, streamed, RESPONSES) === ANSWER_TEXT,
};

const MESSAGES: Endpoint = {
  path: "messages",
  body: (question, streamed) => {
    return { ...common(streamed), system: SYSTEM, messages: [user(question)], max_tokens: TOKENS_MAX };
  },
  stream: { last: "message_stop", firstToken: "content_block_delta" },
  isRight: (text, streamed) => contentOf(text, streamed, MESSAGES) === ANSWER_TEXT,
};

/** Embeddings as numbers, and in base64 from an upstream that sends base64, as OpenAI does, or numbers. */
const embeddings = (model: string, format: object): Endpoint => ({
  path: "embeddings",
  body: (input) => ({ model, input, ...format }),
  isRight: (text) => dimensionsIn(text) === EMBEDDING_DIMENSIONS,
});
const BASE64 = { encoding_format: "base64" };

const ENDPOINTS = {
  chat: CHAT,
  responses: RESPONSES,
  messages: MESSAGES,
  embeddings: embeddings(MODEL_EMBEDDING, {}),
  "embeddings-base64": embeddings(MODEL_EMBEDDING_BASE64, BASE64),
  "embeddings-to-base64": embeddings(MODEL_EMBEDDING, BASE64),
  models: { path: "models", isRight: (text) => text.includes(`"id":"${MODEL_UNSTREAMED}"`) },
  usage: { path: "usage", isRight: (text) => typeof JSON.parse(text).creditsUsed === "number" },
} satisfies Record<string, Endpoint>;

export type EndpointName = keyof typeof ENDPOINTS;
export const ENDPOINT_NAMES = Object.keys(ENDPOINTS) as EndpointName[];
export const endpointOf = (name: EndpointName): Endpoint => ENDPOINTS[name];

/** Returns the body of every request; undefined for a document that is read. The question has at least so many bytes. */
export function requestBody(endpoint: EndpointName, streamed: boolean, promptBytes = 0): string | undefined {
  const times = Math.ceil(Math.max(0, promptBytes - QUESTION.length) / ASIDE.length);
  const body = endpointOf(endpoint).body?.(QUESTION + ASIDE.repeat(times), streamed);
  return body && JSON.stringify(body);
}

interface Choice {
  message?: { content?: string };
  delta?: { content?: string | null };
}

/** The fields of a document or of an event, on any wire, that contain text. */
interface Said {
  type?: string;
  choices?: Choice[];
  /** Responses, not streamed. */
  output?: { content?: { text?: string }[] }[];
  /** Messages, not streamed. */
  content?: { text?: string }[];
  /** Events of both. */
  delta?: string | { text?: string };
}

/** Returns the text of an answer; undefined for a stream that does not end with its last event. */
function contentOf(text: string, streamed: boolean, { stream }: Endpoint): string | undefined {
  if (!streamed) {
    const { choices, output, content } = JSON.parse(text) as Said;
    return choices?.[0]?.message?.content ?? output?.[0]?.content?.[0]?.text ?? content?.[0]?.text;
  }
  const lines = text.split("\n").flatMap((line) => (line.startsWith("data:") ? [line.slice(5).trim()] : []));
  const last = lines.pop() ?? "";
  if (stream === undefined || !last.includes(stream.last)) return undefined;
  return lines.map((line) => pieceOf(JSON.parse(line) as Said)).join("");
}

function pieceOf({ type, choices, delta }: Said): string {
  if (choices !== undefined) return choices[0]?.delta?.content ?? "";
  if (type === "response.output_text.delta") return typeof delta === "string" ? delta : "";
  return type === "content_block_delta" && typeof delta === "object" ? (delta.text ?? "") : "";
}

/** Returns the length of the vector in an answer. */
function dimensionsIn(text: string): number | undefined {
  const { data } = JSON.parse(text) as { data: { embedding: number[] | string }[] };
  const vector = data[0]?.embedding;
  return typeof vector === "string" ? Buffer.from(vector, "base64").length / 4 : vector?.length;
}
