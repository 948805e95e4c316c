import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useReducer, useRef } from "react";
import { renew } from "../../api/actions.ts";
import { complete } from "./api.ts";
import { conversationAfter, EMPTY_CONVERSATION, type Event, messagesOf } from "./conversation.ts";
import { bodyOf, type Settings } from "./settings.ts";

interface ConversationOptions {
  settings: Settings;
  /** Gives the token to ask with. */
  token: () => Promise<string>;
}

/** A conversation with a model: what was said, and how it goes on. Leaving the page stops the answer. */
export function useConversation({ settings, token }: ConversationOptions) {
  const [conversation, tell] = useReducer(conversationAfter, EMPTY_CONVERSATION);
  const running = useRef<AbortController>(null);
  const client = useQueryClient();
  useEffect(() => () => running.current?.abort(), []);

  const run = async (event: Event & { kind: "asked" | "edited" }) => {
    const controller = new AbortController();
    running.current = controller;
    const messages = messagesOf(conversationAfter(conversation, event).turns);
    tell(event);
    const startedAt = performance.now();
    const pieces = batchPerFrame((text) => tell({ kind: "piece", text }));
    try {
      const body = bodyOf(settings, messages);
      const figures = await complete({ body, token: await token(), signal: controller.signal, onPiece: pieces.take });
      pieces.flush();
      tell({ kind: "ended", figures, state: "done" });
    } catch (failure) {
      pieces.flush();
      const durationMs = performance.now() - startedAt;
      const figures = { model: settings.model, firstMs: null, durationMs, usage: null, finishReason: null };
      if (controller.signal.aborted) tell({ kind: "ended", figures, state: "stopped" });
      else tell({ kind: "failed", failure });
    }
    void renew(client, ["overview", "organizations", "requests"]);
  };

  return {
    turns: conversation.turns,
    isStreaming: conversation.turns.at(-1)?.state === "streaming",
    ask: (content: string) => run({ kind: "asked", content }),
    askAgain: (key: number, content: string) => run({ kind: "edited", key, content }),
    stop: () => running.current?.abort(),
    clear: () => {
      running.current?.abort();
      tell({ kind: "cleared" });
    },
  };
}

/** Hands on what comes within one frame at once: the eye sees no more, and the page has less to do. */
function batchPerFrame(hand: (text: string) => void) {
  let text = "";
  let frame = 0;
  const flush = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (text !== "") hand(text);
    text = "";
  };
  const take = (piece: string) => {
    text += piece;
    if (frame === 0) frame = requestAnimationFrame(flush);
  };
  return { take, flush };
}
