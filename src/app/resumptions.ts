import type { Circuits } from "../gateway/circuit.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

const EVERY_MS = 500;
/** The clocks of two nodes may differ by this much. */
const VALID_MS = 60_000;
const RECORDS_MAX = 100;

interface ResumptionsOptions {
  rows: Pick<Store["admin"], "audit">;
  circuits: Pick<Circuits, "health" | "resume">;
  clock: () => number;
  log: Log;
}

export type Resumptions = ReturnType<typeof createResumptions>;

/** Resumes the routes that an operator resumes on any node or by a command, which the audit log tells all processes. */
export function createResumptions({ rows, circuits, clock, log }: ResumptionsOptions) {
  let known = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  let applying = Promise.resolve();
  const applyNew = async () => {
    const nowMs = clock();
    const routes = circuits.health(nowMs);
    if (routes.every(({ health }) => health.state === "closed" && health.limited_until === null)) return;
    const after = uuidV7(nowMs - VALID_MS);
    const newest = { organizationId: null, action: "route.resume", after, before: null, limit: RECORDS_MAX };
    // A store that does not answer is noticed and logged elsewhere; the records are read next time.
    const records = await rows.audit(newest).catch(() => undefined);
    for (const { id, subjectId } of records ?? []) {
      if (known.has(id) || subjectId === null) continue;
      circuits.resume(subjectId);
      log.info({ route: subjectId }, "an operator has resumed a route");
    }
    if (records !== undefined) known = new Set(records.map(({ id }) => id));
  };
  /** Applies what was recorded until now. Never rejects. */
  const apply = (): Promise<void> => {
    applying = applying.then(applyNew);
    return applying;
  };
  return {
    apply,
    start(): void {
      timer = setInterval(apply, EVERY_MS).unref();
    },
    stop(): Promise<void> {
      clearInterval(timer);
      return applying;
    },
  };
}
