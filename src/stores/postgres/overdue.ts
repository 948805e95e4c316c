import type pg from "pg";
import type { Books, HoldReference } from "../store.ts";
import { firstIdAt } from "../uuid.ts";
import { query } from "./transact.ts";

/** Of the index on ids, which also holds all holds that have ended, so many at a time: far less than a statement's time. */
const CHUNK = 20_000;
/** A walk that has met no open hold yet ends after this; the next one goes on where it ended. */
const WALK_MS = 5_000;
/** How far the clocks of nodes, which make the ids of holds, may be apart from the store's. */
const CLOCK_SKEW_MS = 300_000;

const WALK = `
  WITH chunk AS MATERIALIZED (
    SELECT organization_id, id, state, expires_at FROM hold WHERE id > $1 ORDER BY id LIMIT ${CHUNK}
  ), clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
  )
  SELECT min(clock.now) AS now, count(id)::integer AS seen, max(id) AS last,
    min(id) FILTER (WHERE state = 'open') AS first_open,
    array_agg(organization_id ORDER BY id) FILTER (WHERE state = 'open' AND expires_at < clock.now) AS organizations,
    array_agg(id ORDER BY id) FILTER (WHERE state = 'open' AND expires_at < clock.now) AS holds
  FROM clock LEFT JOIN chunk ON true`;

interface Chunk {
  now: bigint;
  seen: number;
  last: string | null;
  first_open: string | null;
  organizations: string[] | null;
  holds: string[] | null;
}

/**
 * Finds overdue holds without an index on expiry: ids are in the order of time, so a walk begins at the oldest hold that
 * was still open at the walk before.
 */
export function overdueHolds(pool: pg.Pool): Books["overdueHolds"] {
  let from = "";
  return async ({ afterHoldId, limit }) => {
    const startedAtMs = performance.now();
    const found: HoldReference[] = [];
    let last = afterHoldId ?? from;
    let metOpen = afterHoldId !== null;
    for (;;) {
      const chunk = await walk(pool, last);
      if (!metOpen) from = later(from, beginningAfter(chunk));
      metOpen ||= chunk.first_open !== null;
      found.push(...overdueOf(chunk));
      if (found.length >= limit || chunk.seen < CHUNK) return found.slice(0, limit);
      if (!metOpen && performance.now() - startedAtMs > WALK_MS) return [];
      last = chunk.last ?? last;
    }
  };
}

async function walk(pool: pg.Pool, after: string): Promise<Chunk> {
  const { rows } = await query<Chunk>(pool, { text: WALK, values: [after], isRepeatable: true });
  const [chunk] = rows;
  if (chunk === undefined) throw new Error("a walk over the holds told nothing");
  return chunk;
}

function overdueOf({ organizations, holds }: Chunk): HoldReference[] {
  return (holds ?? []).map((holdId, index) => ({ organizationId: organizations?.[index] ?? "", holdId }));
}

/** Where the next walk may begin: before the first open hold, and before what a node may still make an id for. */
function beginningAfter({ now, last, first_open }: Chunk): string {
  const recent = firstIdAt(Number(now) - CLOCK_SKEW_MS);
  const reached = first_open === null ? (last ?? "") : firstIdAt(timeOf(first_open));
  return reached < recent ? reached : recent;
}

function later(a: string, b: string): string {
  return a > b ? a : b;
}

/** 0 for what is no UUID: a walk then begins at the first hold of all. */
function timeOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) || 0;
}
