/** Request and response of the benchmark, with the sizes of a short chat. */

const WORDS = (
  "The gate counts what passes and lets it through. A request arrives with a token, is read once, and is held against " +
  "the credits that are there; then the answer flows back piece by piece while somebody keeps count"
).split(" ");

/** The role, the finish reason, the usage and the end. */
const EVENTS_BESIDE_TEXT = 4;
/** Longest answer that a request asks for. */
export const TOKENS_MAX = 256;
const PROMPT_TOKENS = 58;
const COMPLETION_TOKENS = 40;
const CREATED = 1_790_000_000;
const MODEL = "upstream-model";
const ID = "chatcmpl-upstream";

/** Micro-credits that Tollgate charges for one answer at 1 and 2 credits per million tokens. */
export const PRICE = { input: "1", output: "2" };
export const MICRO_CREDITS_AN_ANSWER = PROMPT_TOKENS + 2 * COMPLETION_TOKENS;

/** Returns the most that an answer can cost that was cut off before its usage: no text has more tokens than bytes. */
export function mostMicroCredits(requestBytes: number): number {
  return (
    requestBytes * Math.max(Number(PRICE.input), Number(EMBEDDING_PRICE.input)) + TOKENS_MAX * Number(PRICE.output)
  );
}

/** An embedding costs as much as an answer. */
const EMBEDDING_TOKENS = 46;
export const EMBEDDING_PRICE = { input: String(MICRO_CREDITS_AN_ANSWER / EMBEDDING_TOKENS) };
export const EMBEDDING_DIMENSIONS = 1_536;

export const MODEL_EMBEDDING = "bench-embedding";
/** Its upstream answers in base64, as OpenAI does. */
export const MODEL_EMBEDDING_BASE64 = "bench-embedding-base64";
export const MODEL_UNSTREAMED = "bench";
export const MODEL_STREAMED = "bench-streamed";
export const ANSWER_TEXT = WORDS.join(" ");

const usage = {
  prompt_tokens: PROMPT_TOKENS,
  completion_tokens: COMPLETION_TOKENS,
  total_tokens: PROMPT_TOKENS + COMPLETION_TOKENS,
};

export const UNSTREAMED_ANSWER = JSON.stringify({
  id: ID,
  object: "chat.completion",
  created: CREATED,
  model: MODEL,
  choices: [
    {
      index: 0,
      message: { role: "assistant", content: ANSWER_TEXT, refusal: null },
      logprobs: null,
      finish_reason: "stop",
    },
  ],
  usage,
  system_fingerprint: null,
});

const VECTOR = Array.from({ length: EMBEDDING_DIMENSIONS }, (_, index) => Number(Math.sin(index).toFixed(8)));
export const EMBEDDING_ANSWER = embeddingAnswer(VECTOR);
export const EMBEDDING_BASE64_ANSWER = embeddingAnswer(Buffer.from(new Float32Array(VECTOR).buffer).toString("base64"));

function embeddingAnswer(embedding: number[] | string): string {
  return JSON.stringify({
    object: "list",
    data: [{ object: "embedding", index: 0, embedding }],
    model: MODEL,
    usage: { prompt_tokens: EMBEDDING_TOKENS, total_tokens: EMBEDDING_TOKENS },
  });
}

/** Events of a streamed answer unless `--events` states another number: about two words each. */
export const EVENTS_DEFAULT = Math.ceil(WORDS.length / 2) + EVENTS_BESIDE_TEXT;

/** Returns the events of a streamed answer: the role, the text in pieces, the finish reason, the usage, the end. */
export function streamedEvents(count: number): string[] {
  const head = { id: ID, object: "chat.completion.chunk", created: CREATED, model: MODEL };
  const choice = (delta: object, finish: string | null) => [{ index: 0, delta, logprobs: null, finish_reason: finish }];
  const length = ANSWER_TEXT.length / (count - EVENTS_BESIDE_TEXT);
  const pieces = Array.from({ length: count - EVENTS_BESIDE_TEXT }, (_, at) =>
    ANSWER_TEXT.slice(Math.round(at * length), Math.round((at + 1) * length)),
  );
  const chunks = [
    { ...head, choices: choice({ role: "assistant", content: "" }, null) },
    ...pieces.map((content) => ({ ...head, choices: choice({ content }, null) })),
    { ...head, choices: choice({}, "stop") },
    { ...head, choices: [], usage },
  ];
  return [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"].map((data) => `data: ${data}\n\n`);
}
