import { type EventLoopUtilization, monitorEventLoopDelay, performance } from "node:perf_hooks";
import type { RouteHealth } from "../../gateway/circuit.ts";
import type { LedgerStatus } from "../../ledger/ledger.ts";
import type { Store } from "../../stores/store.ts";
import type { Observe } from "../../telemetry/instruments.ts";

/** Time for which the store is asked; a reader of the metrics waits no longer. */
const STORE_WAIT_MS = 2_000;
const DELAY_RESOLUTION_MS = 20;

/** The parts of a service whose state the metrics show. */
export interface GaugeSources {
  store: Pick<Store, "kind" | "ping" | "pools"> & { books: Pick<Store["books"], "openHolds"> };
  ledgerStatus(): Promise<LedgerStatus>;
  circuits(): readonly RouteHealth[];
  /** Requests without a complete response, and completions that are not settled. */
  runningRequests(): number;
  /** Time after which a hold expires without a renewal. */
  holdLifeMs: number;
  /** Time after its expiry within which a service ends a hold. */
  holdEndsWithinMs: number;
  /** True while processes count their limits together. */
  areLimitsShared(): boolean;
}

/** Reports the present state of a service. */
export async function observeService(sources: GaugeSources, observe: Observe): Promise<void> {
  observe("http.server.active_requests", sources.runningRequests());
  observe("tollgate.limits.shared", sources.areLimitsShared() ? 1 : 0);
  observeCircuits(sources.circuits(), observe);
  for (const { name, max, used, idle, waiting } of sources.store.pools()) {
    const pool = { "db.client.connection.pool.name": name } as const;
    observe("db.client.connection.count", used, { ...pool, "db.client.connection.state": "used" });
    observe("db.client.connection.count", idle, { ...pool, "db.client.connection.state": "idle" });
    observe("db.client.connection.max", max, pool);
    observe("db.client.connection.pending_requests", waiting, pool);
  }
  await Promise.all([observeStore(sources, observe), observeHolds(sources, observe), observeQueues(sources, observe)]);
}

async function observeStore({ store }: GaugeSources, observe: Observe): Promise<void> {
  const isUp = await within(store.ping().then(() => true));
  const system = { sqlite: "sqlite", postgres: "postgresql" }[store.kind];
  observe("tollgate.store.up", isUp === true ? 1 : 0, { "db.system.name": system });
}

async function observeHolds({ store, holdLifeMs, holdEndsWithinMs }: GaugeSources, observe: Observe): Promise<void> {
  observe("tollgate.holds.unrenewed.limit", (holdLifeMs + holdEndsWithinMs) / 1000);
  const open = await within(store.books.openHolds());
  if (open === undefined) return;
  const unrenewedMs = open.count === 0 ? 0 : holdLifeMs - open.earliestExpiryMs;
  observe("tollgate.holds.open", open.count);
  observe("tollgate.holds.oldest.age", Math.max(0, open.oldestMs) / 1000);
  observe("tollgate.holds.oldest.unrenewed", Math.max(0, unrenewedMs) / 1000);
}

async function observeQueues({ ledgerStatus }: GaugeSources, observe: Observe): Promise<void> {
  const status = await within(ledgerStatus());
  if (status === undefined) return;
  observe("tollgate.spool.entries", status.spool.entries);
  observe("tollgate.dead_letters", status.quarantine.entries);
}

/** Counts each provider's circuits by state, with a zero for each state, so that an alert on one can end. */
function observeCircuits(circuits: readonly RouteHealth[], observe: Observe): void {
  for (const [provider, ofProvider] of Map.groupBy(circuits, (circuit) => circuit.provider)) {
    for (const state of ["closed", "half_open", "open"] as const) {
      const count = ofProvider.filter((circuit) => circuit.state === state).length;
      observe("tollgate.circuits", count, { "gen_ai.provider.name": provider, "tollgate.circuit.state": state });
    }
  }
}

/** Returns the result; undefined if it fails or takes too long. */
async function within<T>(result: Promise<T>): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(resolve, STORE_WAIT_MS, undefined);
  try {
    return await Promise.race([result, late]);
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** Measures the process itself. */
export class ProcessGauges {
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  #utilization: EventLoopUtilization = performance.eventLoopUtilization();

  start(): void {
    this.#delay.enable();
  }

  stop(): void {
    this.#delay.disable();
  }

  /** Reports the state of the process, and begins the next period of the event loop's figures. */
  async observe(observe: Observe): Promise<void> {
    const { user, system } = process.cpuUsage();
    observe("process.cpu.time", user / 1e6, { "cpu.mode": "user" });
    observe("process.cpu.time", system / 1e6, { "cpu.mode": "system" });
    observe("process.memory.usage", process.memoryUsage.rss());
    observe("process.uptime", process.uptime());
    observe("nodejs.eventloop.delay.p50", delaySeconds(this.#delay.percentile(50)));
    observe("nodejs.eventloop.delay.p99", delaySeconds(this.#delay.percentile(99)));
    this.#delay.reset();
    const now = performance.eventLoopUtilization();
    observe("nodejs.eventloop.utilization", performance.eventLoopUtilization(now, this.#utilization).utilization);
    this.#utilization = now;
  }
}

/** The histogram contains the interval of its own timer. */
function delaySeconds(nanoseconds: number): number {
  return Math.max(0, nanoseconds - DELAY_RESOLUTION_MS * 1e6) / 1e9;
}
