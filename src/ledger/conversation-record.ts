import type { KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest, ContentPart, RequestMessage } from "../api/request.ts";

/** What was asked and answered, as it is kept. */
export interface ConversationRecord {
  /** JSON. */
  request: string;
  /** JSON. */
  answer: string | null;
  isTruncated: boolean;
  byteLength: number;
}

/** Kept of the part of an image's address that says what it is. */
const IMAGE_KIND_CHARACTERS_MAX = 100;

/**
 * A conversation as JSON of at most `limitBytes`, half of them for the answer. What is longer is cut: of the messages the
 * latest are kept, of texts the beginning. Images that were sent as bytes are left out, but for their kind and length.
 */
export function recordOf(
  request: ChatCompletionRequest,
  answer: KeptAnswer | null,
  limitBytes: number,
): ConversationRecord {
  const answerText = answer === null ? null : fittedAnswer(answer, Math.floor(limitBytes / 2));
  const room = limitBytes - bytesOf(answerText?.json ?? "");
  const requestText = fittedRequest({ ...request, messages: request.messages.map(withoutImages) }, room);
  return {
    request: requestText.json,
    answer: answerText?.json ?? null,
    isTruncated: requestText.isCut || answerText?.isCut === true,
    byteLength: bytesOf(requestText.json) + bytesOf(answerText?.json ?? ""),
  };
}

interface Fitted {
  json: string;
  isCut: boolean;
}

function fittedAnswer(answer: KeptAnswer, limitBytes: number): Fitted {
  const whole = JSON.stringify(answer);
  if (bytesOf(whole) <= limitBytes) return { json: whole, isCut: false };
  const around = bytesOf(JSON.stringify({ ...answer, message: null }));
  return { json: JSON.stringify({ ...answer, message: cutMessage(answer.message, limitBytes - around) }), isCut: true };
}

function fittedRequest(request: ChatCompletionRequest, limitBytes: number): Fitted {
  const { messages, ...rest } = request;
  const whole = sum(messages, leastLengthOf) > limitBytes ? undefined : JSON.stringify(request);
  if (whole !== undefined && bytesOf(whole) <= limitBytes) return { json: whole, isCut: false };
  const fields = fittingFields(rest, limitBytes / 2);
  let left = limitBytes - bytesOf(JSON.stringify({ ...fields, messages: [] }));
  const kept: RequestMessage[] = [];
  for (const message of messages.toReversed()) {
    const fits = leastLengthOf(message) < left && bytesOf(JSON.stringify(message)) < left;
    const one = fits ? message : cutMessage(message, left - 1);
    const length = bytesOf(JSON.stringify(one)) + 1;
    if (length > left) break;
    kept.unshift(one);
    left -= length;
    if (!fits) break;
  }
  return { json: JSON.stringify({ ...fields, messages: kept }), isCut: true };
}

/** At least so many bytes of JSON, without making any: a long prompt is not written out to be thrown away. */
function leastLengthOf({ content = "" }: RequestMessage): number {
  return typeof content === "string" ? content.length : sum(content, (part) => ("text" in part ? part.text.length : 0));
}

function sum<One>(all: readonly One[], lengthOf: (one: One) => number): number {
  return all.reduce((total, one) => total + lengthOf(one), 0);
}

/** The fields that fit together, the shortest first; the instructions come last, and are cut. */
function fittingFields({ instructions, ...fields }: Omit<ChatCompletionRequest, "messages">, limitBytes: number) {
  const lengths = Object.entries(fields).map(([name, value]) => {
    return { name, value, length: bytesOf(JSON.stringify({ [name]: value })) };
  });
  const budget = new Budget(limitBytes);
  const kept: Record<string, unknown> = {};
  for (const { name, value, length } of lengths.sort((one, other) => one.length - other.length)) {
    if (budget.takes(length)) kept[name] = value;
  }
  if (instructions !== undefined) kept.instructions = budget.cut(instructions);
  return kept;
}

type Texts = Pick<RequestMessage, "content" | "refusal" | "reasoning_content" | "tool_calls">;
type Cuttable = { role: string } & { [Field in keyof Texts]?: Texts[Field] | null };

/** With the beginnings of its texts; where that is still too long, nothing but who said it. */
function cutMessage<Message extends Cuttable>(message: Message, limitBytes: number): Message {
  const bare = emptied(message, () => "");
  const budget = new Budget(limitBytes - bytesOf(JSON.stringify(bare)));
  const cut = emptied(message, (text) => budget.cut(text));
  const isShort = bytesOf(JSON.stringify(cut)) <= limitBytes;
  return isShort ? cut : ({ role: message.role, content: "" } as Message);
}

function emptied<Message extends Cuttable>(message: Message, cut: (text: string) => string): Message {
  const { content, refusal, reasoning_content, tool_calls } = message;
  const partOf = (part: ContentPart) => (part.type === "text" ? { ...part, text: cut(part.text) } : part);
  return {
    ...message,
    ...(content && { content: typeof content === "string" ? cut(content) : content.map(partOf) }),
    ...(refusal && { refusal: cut(refusal) }),
    ...(reasoning_content && { reasoning_content: cut(reasoning_content) }),
    ...(tool_calls && {
      tool_calls: tool_calls.map((call) => {
        return { ...call, function: { ...call.function, arguments: cut(call.function.arguments) } };
      }),
    }),
  };
}

/** Bytes of JSON that are left for texts. */
class Budget {
  #leftBytes: number;

  constructor(bytes: number) {
    this.#leftBytes = Math.max(0, bytes);
  }

  takes(bytes: number): boolean {
    if (bytes > this.#leftBytes) return false;
    this.#leftBytes -= bytes;
    return true;
  }

  /** As much of the beginning of a text as fits. */
  cut(text: string): string {
    // No character takes less than a byte.
    let kept = beginningOf(text, this.#leftBytes);
    for (;;) {
      // Its quotation marks are counted where it stands.
      const length = bytesOf(JSON.stringify(kept)) - 2;
      if (this.takes(length)) return kept;
      const share = Math.floor((kept.length * this.#leftBytes) / length);
      kept = beginningOf(kept, Math.min(share, kept.length - 1));
    }
  }
}

const FIRST_HALF = /[\ud800-\udbff]$/;

/** Never with half of a character of two code units at its end. */
function beginningOf(text: string, length: number): string {
  return length >= text.length ? text : text.slice(0, length).replace(FIRST_HALF, "");
}

function withoutImages(message: RequestMessage): RequestMessage {
  if (!Array.isArray(message.content)) return message;
  return { ...message, content: message.content.map(withoutBytes) };
}

function withoutBytes(part: ContentPart): ContentPart {
  if (part.type !== "image_url" || !/^data:/i.test(part.image_url.url)) return part;
  const { url } = part.image_url;
  const comma = url.indexOf(",");
  const kind = comma < 0 ? "data:" : url.slice(0, Math.min(comma + 1, IMAGE_KIND_CHARACTERS_MAX));
  return { ...part, image_url: { ...part.image_url, url: `${kind}[${url.length} characters, not kept]` } };
}

function bytesOf(text: string): number {
  return Buffer.byteLength(text);
}
