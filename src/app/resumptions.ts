import type { Circuits } from "../gateway/circuit.ts";
import { RecentMap } from "../gateway/recent-map.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { AdminRows } from "../stores/queries/admin.ts";
import type { Log } from "../telemetry/logger.ts";

const EVERY_MS = 500;
/** The clocks of two nodes may differ by this much. */
const VALID_MS = 60_000;
const RECORDS_MAX = 100;

export interface ResumptionsOptions {
  rows: Pick<AdminRows, "audit">;
  circuits: Pick<Circuits, "health" | "resume">;
  /** Milliseconds since 1970. */
  clock: () => number;
  log: Log;
}

export interface Resumptions {
  start(): void;
  stop(): Promise<void>;
  /** Applies what was recorded until now. Never rejects. */
  apply(): Promise<void>;
}

/**
 * Resumes the routes that an operator resumes, on whichever node or by a command. The audit log tells all processes of it: they
 * read its newest records while they have a route to resume.
 */
export function createResumptions({ rows, circuits, clock, log }: ResumptionsOptions): Resumptions {
  /** Ids of the records that this process has read. */
  const known = new RecentMap<true>({ idleMs: 2 * VALID_MS, entriesMax: 10 * RECORDS_MAX });
  let timer: NodeJS.Timeout | undefined;
  let applying = Promise.resolve();
  const applyNew = async () => {
    const nowMs = clock();
    const routes = circuits.health(nowMs);
    if (routes.every(({ state, limitedUntilMs }) => state === "closed" && limitedUntilMs === null)) return;
    const after = uuidV7(nowMs - VALID_MS);
    const newest = { organizationId: null, action: "route.resume", after, before: null, limit: RECORDS_MAX };
    // A store that does not answer is noticed and logged elsewhere; the records are read next time.
    for (const { id, subjectId } of await rows.audit(newest).catch(() => [])) {
      const isKnown = known.get(id, nowMs) === true;
      known.set(id, true, nowMs);
      if (isKnown || subjectId === null) continue;
      circuits.resume(subjectId);
      log.info({ route: subjectId }, "an operator has resumed a route");
    }
  };
  const apply = () => {
    applying = applying.then(applyNew);
    return applying;
  };
  return {
    apply,
    start() {
      timer = setInterval(apply, EVERY_MS).unref();
    },
    stop() {
      clearInterval(timer);
      return applying;
    },
  };
}
