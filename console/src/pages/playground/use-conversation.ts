import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useReducer, useRef } from "react";
import { renew } from "../../api/actions.ts";
import { complete } from "./api.ts";
import { conversationAfter, EMPTY_CONVERSATION, type Event, messagesOf } from "./conversation.ts";
import { bodyOf, type Settings } from "./settings.ts";

interface ConversationOptions {
  settings: Settings;
  /** Gets the token for a request. */
  token: () => Promise<string>;
}

/** Manages a conversation with a model. Leaving the page stops the answer. */
export function useConversation({ settings, token }: ConversationOptions) {
  const [conversation, dispatch] = useReducer(conversationAfter, EMPTY_CONVERSATION);
  const running = useRef<AbortController>(null);
  const client = useQueryClient();
  useEffect(() => () => running.current?.abort(), []);

  const run = async (event: Event & { kind: "asked" | "edited" }) => {
    const controller = new AbortController();
    running.current = controller;
    const messages = messagesOf(conversationAfter(conversation, event).turns);
    dispatch(event);
    const startedAt = performance.now();
    const pieces = batchPerFrame((text) => dispatch({ kind: "piece", text }));
    try {
      const body = bodyOf(settings, messages);
      const figures = await complete({ body, token: await token(), signal: controller.signal, onPiece: pieces.take });
      pieces.flush();
      dispatch({ kind: "ended", figures, state: "done" });
    } catch (failure) {
      pieces.flush();
      const durationMs = performance.now() - startedAt;
      const figures = { model: settings.model, firstMs: null, durationMs, usage: null, finishReason: null };
      if (controller.signal.aborted) dispatch({ kind: "ended", figures, state: "stopped" });
      else dispatch({ kind: "failed", failure });
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
      dispatch({ kind: "cleared" });
    },
  };
}

/** Collects pieces of text and passes them on once per animation frame, which saves rendering. */
function batchPerFrame(onText: (text: string) => void) {
  let text = "";
  let frame = 0;
  const flush = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (text !== "") onText(text);
    text = "";
  };
  const take = (piece: string) => {
    text += piece;
    if (frame === 0) frame = requestAnimationFrame(flush);
  };
  return { take, flush };
}
