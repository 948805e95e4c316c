import { type EventLoopUtilization, monitorEventLoopDelay, performance } from "node:perf_hooks";
import type { BatchObservableResult, Meter } from "@opentelemetry/api";
import type { Circuits } from "../../gateway/circuit.ts";
import type { RateLimiter } from "../../gateway/limits.ts";
import type { Server } from "../../http/server.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import { type HoldTimes, holdEndsWithinMs } from "../../ledger/verify.ts";
import type { Store } from "../../stores/store.ts";

/** Time for which the store is asked; a reader of the metrics waits no longer. */
const STORE_WAIT_MS = 2_000;
const DELAY_RESOLUTION_MS = 20;

/** State of the configuration of a service, to compare it with others. */
export interface ConfigurationState {
  hash: number;
  /** False after a mistake in the configuration, until it can be read again. */
  isRead: boolean;
  /** True if a changed setting takes effect only at the next start. */
  needsRestart: boolean;
}

/** The parts of a service whose state the metrics show. */
export interface GaugeSources {
  store: Pick<Store, "kind" | "ping" | "pools" | "books" | "events">;
  ledger: Pick<Ledger, "status">;
  circuits: Pick<Circuits, "health">;
  limits: Pick<RateLimiter, "status">;
  server: Pick<Server, "runningRequests">;
  reloads: { readonly state: ConfigurationState };
  holdTimes: HoldTimes;
  clock: () => number;
}

/** Reports the state of a service and its process whenever the metrics are read. Returns the function that ends it. */
export function observeState(meter: Meter, sources: GaugeSources): () => void {
  const instruments = createInstruments(meter);
  const observables = Object.values(instruments);
  const delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  let last: EventLoopUtilization = performance.eventLoopUtilization();
  const observe = async (result: BatchObservableResult) => {
    // The histogram contains the interval of its own timer.
    result.observe(instruments.delay, Math.max(0, delay.percentile(99) - DELAY_RESOLUTION_MS * 1e6) / 1e9);
    delay.reset();
    const now = performance.eventLoopUtilization();
    result.observe(instruments.utilization, performance.eventLoopUtilization(now, last).utilization);
    last = now;
    observeParts(instruments, sources, result);
    await observeStore(instruments, sources, result);
  };
  delay.enable();
  meter.addBatchObservableCallback(observe, observables);
  return () => {
    meter.removeBatchObservableCallback(observe, observables);
    delay.disable();
  };
}

function createInstruments(meter: Meter) {
  const gauge = (name: string, description: string, unit?: string) =>
    meter.createObservableGauge(name, { description, unit });
  const count = (name: string, description: string, unit: string) =>
    meter.createObservableUpDownCounter(name, { description, unit });
  return {
    cpuTime: meter.createObservableCounter("process.cpu.time", {
      description: "Processor time of the process.",
      unit: "s",
    }),
    memory: count("process.memory.usage", "Resident memory of the process.", "By"),
    delay: gauge("nodejs.eventloop.delay.p99", "99th percentile of the event loop's delay since the last read.", "s"),
    utilization: gauge(
      "nodejs.eventloop.utilization",
      "Share of time in which the event loop was busy since the last read.",
      "1",
    ),
    activeRequests: count("http.server.active_requests", "Requests that are not answered and settled.", "{request}"),
    circuits: gauge("tollgate.circuits", "Upstreams that were called since the start, by the state of their circuit."),
    openHolds: gauge("tollgate.holds.open", "Open holds in the store, of all services that share it."),
    unrenewed: gauge("tollgate.holds.oldest.unrenewed", "Longest time since an open hold was made or renewed.", "s"),
    unrenewedMax: gauge("tollgate.holds.unrenewed.limit", "Time within which a service ends an unrenewed hold.", "s"),
    spoolEntries: gauge("tollgate.spool.entries", "Settlements and releases that wait in the spool for the store."),
    deadLetters: gauge("tollgate.dead_letters", "Transitions that could not be booked. Above 0, they need a person."),
    warningsWaiting: gauge("tollgate.warnings.waiting", "Deliveries of warnings that wait for an attempt."),
    warningsAge: gauge("tollgate.warnings.oldest.age", "Age of the oldest delivery of a warning that waits.", "s"),
    warningsFailed: gauge("tollgate.warnings.failed", "Deliveries of warnings that failed in the last 30 days."),
    storeUp: gauge("tollgate.store.up", "1 if the store answers and accepts writes, otherwise 0."),
    limitsShared: gauge("tollgate.limits.shared", "1 while processes count their limits together, otherwise 0."),
    configurationHash: gauge("tollgate.configuration.hash", "Hash of the configuration, to compare it with others."),
    configurationRead: gauge("tollgate.configuration.read", "1 if the configuration could be read, 0 after a mistake."),
    restartNeeded: gauge("tollgate.configuration.restart_needed", "1 if a changed setting waits for the next start."),
    connections: count("db.client.connection.count", "Connections to the store by pool and state.", "{connection}"),
    connectionsMax: count("db.client.connection.max", "Maximum number of connections of a pool.", "{connection}"),
    pending: count("db.client.connection.pending_requests", "Requests that wait for a connection.", "{request}"),
  };
}

type Instruments = ReturnType<typeof createInstruments>;

async function observeStore(
  gauges: Instruments,
  { store, ledger, holdTimes, clock }: GaugeSources,
  result: BatchObservableResult,
): Promise<void> {
  const [isUp, open, warnings, status] = await Promise.all([
    within(store.ping().then(() => true)),
    within(store.books.openHolds()),
    within(store.events.deliveryState()),
    within(ledger.status()),
  ]);
  const system = { sqlite: "sqlite", postgres: "postgresql" }[store.kind];
  result.observe(gauges.storeUp, isUp === true ? 1 : 0, { "db.system.name": system });
  if (open !== undefined) {
    const unrenewedMs = open.count === 0 ? 0 : holdTimes.holdSeconds * 1000 - open.earliestExpiryMs;
    result.observe(gauges.openHolds, open.count);
    result.observe(gauges.unrenewed, Math.max(0, unrenewedMs) / 1000);
  }
  if (warnings !== undefined) {
    const { waiting, failed, oldestAtMs } = warnings;
    result.observe(gauges.warningsWaiting, waiting);
    result.observe(gauges.warningsAge, oldestAtMs === null ? 0 : Math.max(0, clock() - oldestAtMs) / 1000);
    result.observe(gauges.warningsFailed, failed);
  }
  if (status === undefined) return;
  result.observe(gauges.spoolEntries, status.spool.entries);
  result.observe(gauges.deadLetters, status.deadLetters.entries);
}

/** Reports the state that needs no answer of the store. */
function observeParts(gauges: Instruments, sources: GaugeSources, result: BatchObservableResult): void {
  const { user, system } = process.cpuUsage();
  result.observe(gauges.cpuTime, user / 1e6, { "cpu.mode": "user" });
  result.observe(gauges.cpuTime, system / 1e6, { "cpu.mode": "system" });
  result.observe(gauges.memory, process.memoryUsage.rss());
  result.observe(gauges.activeRequests, sources.server.runningRequests());
  result.observe(gauges.limitsShared, sources.limits.status().mode === "shared" ? 1 : 0);
  const { hash, isRead, needsRestart } = sources.reloads.state;
  result.observe(gauges.configurationHash, hash);
  result.observe(gauges.configurationRead, isRead ? 1 : 0);
  result.observe(gauges.restartNeeded, needsRestart ? 1 : 0);
  result.observe(gauges.unrenewedMax, sources.holdTimes.holdSeconds + holdEndsWithinMs(sources.holdTimes) / 1000);
  for (const { name, max, used, idle, waiting } of sources.store.pools()) {
    const pool = { "db.client.connection.pool.name": name };
    result.observe(gauges.connections, used, { ...pool, "db.client.connection.state": "used" });
    result.observe(gauges.connections, idle, { ...pool, "db.client.connection.state": "idle" });
    result.observe(gauges.connectionsMax, max, pool);
    result.observe(gauges.pending, waiting, pool);
  }
  for (const [provider, circuits] of Map.groupBy(
    sources.circuits.health(sources.clock()),
    ({ provider }) => provider,
  )) {
    // With a zero for each state, so that an alert on one can end.
    for (const state of ["closed", "partly_open", "open"] as const) {
      const inState = circuits.filter(({ health }) => health.state === state).length;
      result.observe(gauges.circuits, inState, { "gen_ai.provider.name": provider, "tollgate.circuit.state": state });
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
