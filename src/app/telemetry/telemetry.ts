import { setTimeout as sleep } from "node:timers/promises";
import type { Meter } from "@opentelemetry/api";
import type { Catalog } from "../../catalog/model.ts";
import { isLoopback } from "../../config/formats.ts";
import type { Config } from "../../config.ts";
import { creditsFromMicro } from "../../credits/amount.ts";
import { withAliases } from "../../gateway/plan.ts";
import type { BegunRequest, RequestObserver } from "../../http/access.ts";
import { listenForMetrics } from "../../http/health.ts";
import { COMMIT_FAILURES } from "../../ledger/commit-queue.ts";
import type { LedgerObserver } from "../../ledger/ledger.ts";
import type { Log } from "../../telemetry/logger.ts";
import { type GaugeSources, observeState } from "./gauges.ts";
import { createRequestMetrics, type ModelNames } from "./requests.ts";
import { createMeters, createTracers } from "./sdk.ts";
import { beginSpan } from "./spans.ts";

const COMMIT_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/** Time for the last exports of a process that stops. A collector that cannot be reached is tried for longer. */
const STOP_MS = 2_000;

/** Metrics and traces of a service, as far as they are configured. */
export type Telemetry = Awaited<ReturnType<typeof createTelemetry>>;

/** Creates the telemetry of a configuration. Rejects with OperatorError if a package that it needs is not installed. */
export async function createTelemetry(
  config: Config,
  { version, log, live }: { version: string; log: Log; live: { readonly catalog: Catalog } },
) {
  const modelId: ModelNames["modelId"] = (name, aliases) => withAliases(live.catalog, aliases ?? {}).find(name)?.id;
  const onFailure = (failure: unknown) => log.warn({ err: failure }, "telemetry could not be exported");
  const sdkOptions = { version, onFailure };
  const [meters, tracers] = await Promise.all([createMeters(config, sdkOptions), createTracers(config, sdkOptions)]);
  const perDollar = Number(config.credits.perDollar);
  const record = meters && createRequestMetrics(meters.meter, { modelId, perDollar });
  const spans = tracers && { modelId, ...tracers };
  let endObserving: (() => void) | undefined;
  let stopServing: (() => Promise<void>) | undefined;
  return {
    observeRequest:
      (record ?? spans) &&
      ((begun: BegunRequest): RequestObserver => {
        const span = spans && beginSpan(spans, begun);
        const ended: RequestObserver["ended"] = (...request) => {
          record?.(...request);
          span?.ended(...request);
        };
        return { traceId: span?.traceId, traceparent: span?.traceparent, ended };
      }),
    ledger: meters && ledgerMetrics(meters.meter),
    /** Returns all metrics in Prometheus' text format; undefined where nothing serves them. */
    read: meters?.read,
    /** Shows the state of a service in the metrics, and serves them on a port of their own if there is one. */
    async start(sources: GaugeSources): Promise<void> {
      if (meters === undefined) return;
      endObserving = observeState(meters.meter, sources);
      const { host, port, token } = config.metrics;
      if (meters.read === undefined || port === undefined) return;
      stopServing = await listenForMetrics({ host, port }, { token, read: meters.read });
      if (token === undefined && !isLoopback(host)) {
        log.warn({ host, port }, "the metrics can be read without a token: set metrics.token");
      }
    },
    /** Ends showing the state of the service, before its parts are closed. */
    detach(): void {
      endObserving?.();
    },
    async stop(): Promise<void> {
      const exported = [meters, tracers].map((one) => one?.stop().catch(onFailure));
      const stopped = Promise.all([stopServing?.(), ...exported]);
      const late = await Promise.race([stopped, sleep(STOP_MS, "late" as const, { ref: false })]);
      if (late === "late") onFailure(new Error(`the collector did not take them within ${STOP_MS} ms`));
    },
  };
}

function ledgerMetrics(meter: Meter): LedgerObserver {
  const duration = meter.createHistogram("tollgate.commit.duration", {
    description: "Time that the store took to commit a batch of transitions, or to fail.",
    unit: "s",
    advice: { explicitBucketBoundaries: COMMIT_SECONDS },
  });
  const batchSize = meter.createHistogram("tollgate.commit.batch.size", {
    description: "Transitions in a batch.",
    unit: "{transition}",
    advice: { explicitBucketBoundaries: BATCH_SIZES },
  });
  const shortfall = meter.createCounter("tollgate.credits.shortfall", {
    description: "Charges that no credits covered. Above 0, the books need a person.",
    unit: "{credit}",
  });
  const failures = meter.createCounter("tollgate.commit.failures", {
    description: "Batches of transitions that the store did not commit, by the reason.",
    unit: "{batch}",
  });
  // An alert needs the 0 before the first one.
  shortfall.add(0);
  for (const failure of COMMIT_FAILURES) failures.add(0, { "tollgate.commit.failure": failure });
  return {
    sending(durability, size) {
      const startedMs = performance.now();
      const labels = { "tollgate.commit.queue": durability };
      batchSize.record(size, labels);
      return (result) => {
        const outcome = result === "booked" ? "booked" : "failed";
        duration.record((performance.now() - startedMs) / 1000, { ...labels, "tollgate.commit.outcome": outcome });
        if (result !== "booked") failures.add(1, { "tollgate.commit.failure": result });
      };
    },
    shortfall: (amount) => shortfall.add(creditsFromMicro(amount)),
  };
}
