import type { FastifyInstance } from "fastify";
import type { LimitsStatus } from "../gateway/limits.ts";
import type { LedgerStatus } from "../ledger/ledger.ts";

export interface HealthSources {
  /** Rejects when the store does not answer or accepts no writes. */
  ping(): Promise<void>;
  /** Entries of the spool and the dead letter file. */
  ledgerStatus(): Promise<LedgerStatus>;
  /** Absent if the configuration names no Redis. */
  limitsStatus?: () => LimitsStatus;
}

/** Paths that report the health of the process. */
export const HEALTH_PATHS: ReadonlySet<string> = new Set(["/healthz", "/readyz"]);

/** A check writes to the store and needs no authentication, so its result is reused for this time. */
const CHECK_REUSED_MS = 100;

/**
 * Serves `/healthz` (the process runs) and `/readyz` (it accepts requests and the store answers, with the entries of the
 * spool and the dead letter file).
 */
export function serveHealth(
  server: FastifyInstance,
  { ping, ledgerStatus, limitsStatus }: HealthSources,
): { drain(): void } {
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
      }, CHECK_REUSED_MS).unref();
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
    return reply
      .code(status === "ready" ? 200 : 503)
      .send({ status, ...(limitsStatus && { limits: limitsStatus().mode }), ...(await ledgerStatus()) });
  });
  return {
    drain: () => {
      isDraining = true;
    },
  };
}
