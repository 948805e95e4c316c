import { skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { useCallback } from "react";
import type { ChatCompletionChunk, CompletionUsage } from "../../../../src/api/chat/completion.ts";
import type { ModelList } from "../../../../src/api/model.ts";
import { ApiFailure, failureOf, send } from "../../api/client.ts";
import { models, organization } from "../../api/queries.ts";
import type { PlaygroundToken } from "../../api/types.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { useSession } from "../../shell/session.ts";
import type { CallBody, ToolCallPart } from "../../snippets/snippets.ts";
import type { Figures, Piece } from "./conversation.ts";

interface CompletionCall {
  body: CallBody;
  token: string;
  signal: AbortSignal;
  /** Called with the ID of the request once its answer has begun. */
  onStart: (requestId: string | null) => void;
  onPiece: (piece: Piece) => void;
}

/** Requests a streamed completion from `/v1`, like any client. Calls `onPiece` with each piece of the answer. */
export async function complete({ body, token, signal, onStart, onPiece }: CompletionCall): Promise<Figures> {
  const startedAt = performance.now();
  const answer = await fetch(`${apiBaseUrl()}/chat/completions`, {
    method: "POST",
    // The token is the only credential: /v1 accepts no cookies.
    credentials: "omit",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!answer.ok || answer.body === null) throw await failureOf(answer);
  onStart(answer.headers.get("x-request-id"));
  const calls: ToolCallPart[] = [];
  let firstMs: number | null = null;
  let usage: CompletionUsage | null = null;
  let finishReason: string | null = null;
  let model = body.model;
  const events = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  for await (const { data } of iterate(events)) {
    if (data === "[DONE]") break;
    const chunk = readChunk(data);
    model = chunk.model;
    usage = chunk.usage ?? usage;
    const [choice] = chunk.choices;
    finishReason = choice?.finish_reason ?? finishReason;
    const piece = choice === undefined ? {} : pieceOf(choice.delta, calls);
    if (Object.keys(piece).length === 0) continue;
    firstMs ??= performance.now() - startedAt;
    onPiece(piece);
  }
  return { model, firstMs, durationMs: performance.now() - startedAt, usage, finishReason };
}

/** Returns what a chunk adds to an answer. `calls` collects the pieces of its tool calls. */
function pieceOf(
  { content, tool_calls, images }: ChatCompletionChunk["choices"][number]["delta"],
  calls: ToolCallPart[],
): Piece {
  for (const { index, id = "", function: part = {} } of tool_calls ?? []) {
    const { id: knownId = id, function: known = { name: "", arguments: "" } } = calls[index] ?? {};
    const whole = { name: known.name + (part.name ?? ""), arguments: known.arguments + (part.arguments ?? "") };
    calls[index] = { id: knownId, type: "function", function: whole };
  }
  return {
    ...(content && { text: content }),
    ...(tool_calls && { toolCalls: [...calls] }),
    ...(images && { images: images.flatMap(imageUrlIn) }),
  };
}

/** Returns the URL of an image of an answer. */
function imageUrlIn(image: unknown): string[] {
  const { image_url } = image as { image_url?: { url?: unknown } };
  return typeof image_url?.url === "string" ? [image_url.url] : [];
}

/** Iterates over a stream. Not all browsers support async iteration of streams. */
async function* iterate<T>(stream: ReadableStream<T>): AsyncGenerator<T> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Parses a chunk. A failure during streaming arrives as an event with an error. */
function readChunk(data: string): ChatCompletionChunk {
  const event = JSON.parse(data) as ChatCompletionChunk | { error: { message: string; code: string | null } };
  if (!("error" in event)) return event;
  const { message, code } = event.error;
  throw new ApiFailure(502, message, { code: code ?? undefined });
}

/** Minimum remaining lifetime of a token that is reused. */
const SPARE_MS = 5 * 60_000;

const keyOf = (organizationId: string | null) => ["playground-token", organizationId];

/**
 * Returns true if prompts and answers are stored; undefined while unknown. `organizationId` is the organization that an
 * operator selected, or null for members and guests. For guests their token says so.
 */
export function useIsStored(organizationId: string | null): boolean | undefined {
  const session = useSession();
  const id = organizationId ?? session.organization?.id;
  const payer = useQuery({ ...organization(id ?? ""), enabled: id !== undefined });
  const token = useQuery<PlaygroundToken>({ queryKey: keyOf(null), queryFn: skipToken });
  return session.role === null ? token.data?.keeps_conversations : payer.data?.keeps_conversations;
}

/**
 * Returns a function that gets a short-lived token for `/v1`, which is kept in memory only. `null` stands for the
 * member's own organization or that of the guests. A token is reused until shortly before its expiry.
 */
export function useTokens() {
  const client = useQueryClient();
  return useCallback(
    async (organizationId: string | null): Promise<string> => {
      const queryKey = keyOf(organizationId);
      const held = client.getQueryData<PlaygroundToken>(queryKey);
      if (held !== undefined && Date.parse(held.expires_at) - Date.now() > SPARE_MS) return held.token;
      const wanted = organizationId === null ? {} : { organization_id: organizationId };
      const made = await client.fetchQuery({
        queryKey,
        queryFn: () => send<PlaygroundToken>("POST", "/admin/v1/playground/token", wanted),
        staleTime: 0,
      });
      return made.token;
    },
    [client],
  );
}

/**
 * Returns the models that the user can call, also those that do not chat. Signed-in users get them from the admin API,
 * which needs no playground token. Guests get them from `/v1` with a token of the playground organization.
 */
export function usePlaygroundModels(token: () => Promise<string>) {
  const isGuest = useSession().role === null;
  const listed = useQuery({ ...models, enabled: !isGuest, select: ({ data }) => data });
  const ofGuests = useQuery({
    queryKey: ["playground-models"],
    enabled: isGuest,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const headers = { authorization: `Bearer ${await token()}` };
      const answer = await fetch(`${apiBaseUrl()}/models`, { credentials: "omit", headers, signal });
      if (!answer.ok) throw await failureOf(answer);
      return ((await answer.json()) as ModelList).data;
    },
  });
  return isGuest ? ofGuests : listed;
}
