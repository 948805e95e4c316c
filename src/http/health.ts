import type { FastifyInstance } from "fastify";
import type { LedgerStatus } from "../ledger/ledger.ts";

export interface HealthSources {
  /** Rejects when the store does not answer, or takes no writes. */
  ping(): Promise<void>;
  /** What waits to be booked, and what cannot be. */
  ledgerStatus(): Promise<LedgerStatus>;
}

/** Paths that report the health of the process. */
export const HEALTH_PATHS: ReadonlySet<string> = new Set(["/healthz", "/readyz"]);

/** Asking makes the store write, and anybody may ask: it is asked ten times a second at most. */
const GOOD_FOR_MS = 100;

/** `/healthz`: the process runs. `/readyz`: it takes requests and its store answers, and what waits to be booked. */
export function serveHealth(server: FastifyInstance, { ping, ledgerStatus }: HealthSources): { drain(): void } {
  let isDraining = false;
  let found: Promise<boolean> | undefined;
  const ask = async () => {
    try {
      await ping();
      return true;
    } catch {
      return false;
    } finally {
      setTimeout(() => {
        found = undefined;
      }, GOOD_FOR_MS).unref();
    }
  };
  const isStoreUp = () => {
    found ??= ask();
    return found;
  };
  server.get("/healthz", async () => ({ status: "ok" }));
  server.get("/readyz", async (_request, reply) => {
    const isUp = isDraining || (await isStoreUp());
    const status = isDraining ? "draining" : isUp ? "ready" : "store_unavailable";
    return reply.code(status === "ready" ? 200 : 503).send({ status, ...(await ledgerStatus()) });
  });
  return {
    drain: () => {
      isDraining = true;
    },
  };
}
