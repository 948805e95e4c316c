import { useQueryClient } from "@tanstack/react-query";
import { renew } from "../../api/actions.ts";
import { ApiFailure, read } from "../../api/client.ts";
import type { RequestDetail } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { complete } from "./api.ts";
import { type Figures, messagesOf, type Start } from "./conversation.ts";
import { bodyOf } from "./settings.ts";
import { changeColumn, current, dispatch, running } from "./store.ts";

/** Attempts to read what an incomplete answer cost, a second apart: it is booked shortly after its end. */
const CHARGE_READS = 15;
const CHARGE_READ_EVERY_MS = 1_000;

/** Returns a function that begins an answer in a column. It runs on while other pages are shown. */
export function useRun(token: () => Promise<string>) {
  const client = useQueryClient();
  const { may } = useAccess();
  const mayRead = may("requests:read");

  return async (key: number, model: string, start: Start) => {
    const controller = new AbortController();
    running.get(key)?.abort();
    running.set(key, controller);
    changeColumn(key, (column) => ({ ...column, model }));
    dispatch(key, { ...start, model });
    const turns = current().columns.find((column) => column.key === key)?.conversation.turns ?? [];
    const answerKey = turns.at(-1)?.key ?? -1;
    const startedAt = performance.now();
    const pieces = batchPerFrame((text) => dispatch(key, { kind: "piece", text }));
    let requestId: string | null = null;
    const incomplete = (): Figures => {
      const durationMs = performance.now() - startedAt;
      return { model, firstMs: null, durationMs, usage: null, finishReason: null };
    };
    try {
      const body = bodyOf(current().settings, model, messagesOf(turns));
      const figures = await complete({
        body,
        token: await token(),
        signal: controller.signal,
        onStart: (id) => {
          requestId = id;
        },
        onPiece: ({ text, ...rest }) => {
          if (text !== undefined) pieces.take(text);
          if (Object.keys(rest).length > 0) dispatch(key, { kind: "piece", ...rest });
        },
      });
      pieces.flush();
      dispatch(key, { kind: "ended", figures, state: "done" });
    } catch (failure) {
      pieces.flush();
      if (controller.signal.aborted) dispatch(key, { kind: "ended", figures: incomplete(), state: "stopped" });
      else dispatch(key, { kind: "failed", failure, ...(requestId !== null && { figures: incomplete() }) });
      if (requestId !== null && mayRead) {
        const charged = await chargeOf(requestId);
        if (charged !== null) dispatch(key, { kind: "charged", key: answerKey, charged });
      }
    } finally {
      if (running.get(key) === controller) running.delete(key);
    }
    void renew(client, ["overview", "organizations", "requests"]);
  };
}

/** Returns what a request cost once it has ended; null if that cannot be read. */
async function chargeOf(requestId: string): Promise<number | null> {
  for (let reads = 0; reads < CHARGE_READS; reads += 1) {
    try {
      const path = `/admin/v1/requests/${encodeURIComponent(requestId)}`;
      const { ended_at, charged } = await read<RequestDetail>(path);
      if (ended_at !== null) return charged;
    } catch (error) {
      if (!(error instanceof ApiFailure) || error.status !== 404) return null;
    }
    await new Promise((resolve) => setTimeout(resolve, CHARGE_READ_EVERY_MS));
  }
  return null;
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
