import { type QueryClient, useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { ApiFailure } from "./client.ts";
import { session } from "./queries.ts";
import type { Session } from "./types.ts";

/**
 * Marks queries as stale and refetches those that are shown. Running fetches are cancelled: the service may have
 * answered them before the change.
 */
export async function renew(client: QueryClient, keys: readonly string[]): Promise<void> {
  const renewed = keys.map(async (key) => {
    await client.cancelQueries({ queryKey: [key] });
    await client.invalidateQueries({ queryKey: [key] });
  });
  await Promise.all(renewed);
}

/** Shows a session that has begun. A running fetch is cancelled: answered before the sign-in, it would show none. */
export async function beginSession(client: QueryClient, made: Session): Promise<void> {
  await client.cancelQueries({ queryKey: session.queryKey });
  client.setQueryData(session.queryKey, made);
}

/** A random UUID (version 4). `crypto.randomUUID` is missing on pages over plain HTTP. */
function randomUuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Returns true when the outcome of a request is unknown: no answer arrived, or the service failed. */
export function isOutcomeUnknown(error: unknown): boolean {
  return !(error instanceof ApiFailure) || error.status >= 500;
}

/**
 * Idempotency keys of one form: a new one for each content, the same one for a retry of the same content, so that the
 * service carries out a retry after a lost answer only once. A refusal ends the key, because nothing was carried out.
 */
export class IdempotencyKeys {
  #current: { content: string; key: string } | null = null;

  keyFor(input: unknown): string {
    const content = JSON.stringify(input) ?? "";
    if (this.#current?.content !== content) this.#current = { content, key: randomUuid() };
    return this.#current.key;
  }

  /** Records that a request failed. */
  failed(error: unknown): void {
    if (isOutcomeUnknown(error) || !(error instanceof ApiFailure)) return;
    // With this code, an earlier request with the key is still running.
    if (error.code !== "idempotency_in_progress") this.#current = null;
  }
}

/**
 * Returns a mutation that refetches the affected queries. While it runs, a second call does nothing. `run` gets the
 * input and the idempotency key to send with it; `keys` are the first elements of the affected query keys.
 */
export function useAction<Input, Output>(
  run: (input: Input, idempotencyKey: string) => Promise<Output>,
  keys: readonly string[],
  onDone?: (output: Output) => void,
) {
  const client = useQueryClient();
  const idempotency = useRef(new IdempotencyKeys());
  const isRunning = useRef(false);
  const mutation = useMutation({
    mutationFn: (input: Input) => run(input, idempotency.current.keyFor(input)),
    // Offline, an action fails at once: it would otherwise run by itself whenever the network is back.
    networkMode: "always",
    onSuccess: onDone,
    onError: (error) => idempotency.current.failed(error),
    onSettled: () => {
      isRunning.current = false;
      void renew(client, keys);
    },
  });
  const start = (input: Input) => {
    if (isRunning.current) return;
    isRunning.current = true;
    mutation.mutate(input);
  };
  return { ...mutation, mutate: start };
}
