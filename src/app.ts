import { SERVICE_ACTOR } from "./admin/audit.ts";
import { LastUses } from "./admin/last-uses.ts";
import { firstAdminToken } from "./admin/sessions.ts";
import { ensureFirstOrganization, type FirstOrganization } from "./app/first-run.ts";
import { createHttp, gaugeSources, listen, urlOf } from "./app/http.ts";
import { createLimits } from "./app/limits.ts";
import { LiveParts } from "./app/live.ts";
import {
  createConversationLog,
  createHealthFile,
  createLedger,
  createOverload,
  createRefusalLog,
  createRetention,
  createSignInFailures,
  createUsageDays,
  newIdOf,
  openStoreOf,
  type StartOptions,
} from "./app/parts.ts";
import { Reloads } from "./app/reload.ts";
import { Resumptions } from "./app/resumptions.ts";
import { createTelemetry } from "./app/telemetry/telemetry.ts";
import type { LiveCatalog } from "./catalog/live.ts";
import type { Config } from "./config.ts";
import { Circuits } from "./gateway/circuit.ts";
import { TokenCounter } from "./gateway/token-counter.ts";
import type { ShutdownOptions } from "./http/shutdown.ts";
import type { Store } from "./stores/store.ts";

/** Facts of a start, for programs. */
export interface StartFacts {
  version: string;
  url: string;
  store: Store["kind"];
  models: number;
  organizationId: string;
  /** Only on the first start on an empty store. */
  token: string | null;
  /** Only on the first start on a store that never had one. */
  adminToken: string | null;
}

export interface RunningService {
  url: string;
  facts: StartFacts;
  catalog: LiveCatalog;
  firstOrganization: FirstOrganization;
  /** Reads the configuration again and applies it; the log tells the result. Never rejects. */
  reload(): Promise<void>;
  /** Accepts nothing new, lets running answers end, books the rest, and closes everything. */
  stop(options: ShutdownOptions): Promise<void>;
}

/**
 * Composes the service and starts it. In a store without an organization it creates the first one, with credits and a
 * token. Rejects with OperatorError where the configuration, the store or the address cannot be used.
 */
export async function startService(config: Config, options: StartOptions): Promise<RunningService> {
  // When a step fails, everything opened so far is closed in reverse order. A stop does the same.
  await using parts = new AsyncDisposableStack();
  let shutdown: ShutdownOptions = { delayMs: 0, drainMs: 0 };
  let ownPort: number | undefined;
  const live = parts.adopt(new LiveParts(config, { ...options, ownPort: () => ownPort }), (opened) => opened.close());
  const modelId = (name: string) => live.catalog.find(name)?.id;
  const telemetry = parts.adopt(await createTelemetry(config, { ...options, modelId }), (opened) => opened.stop());
  const { store, arrived } = await openStoreOf(config, options, () => live.database);
  parts.defer(() => store.close());
  // Stopped after the ledger, so that charges are booked before anything else is written.
  const conversationLog = parts.adopt(createConversationLog(live, options, store), (opened) => opened.stop());
  const ledger = parts.adopt(await createLedger(config, options, store, telemetry.ledger), (opened) => opened.stop());
  const core = { ...options, accounts: store.accounts, actor: SERVICE_ACTOR, newId: newIdOf(options) };
  const lastUses = parts.adopt(new LastUses({ rows: store.accounts, log: options.log }), (opened) => opened.stop());
  const circuits = new Circuits();
  const healthFile = parts.adopt(createHealthFile(config, options, circuits), (opened) => opened.stop());
  const resumed = { ...options, rows: store.admin, circuits };
  const resumptions = parts.adopt(new Resumptions(resumed), (opened) => opened.stop());
  const usageDays = parts.adopt(createUsageDays(options, store), (opened) => opened.stop());
  const retained = { store, usageDays, ledger };
  const retention = parts.adopt(createRetention(live, options, retained), (opened) => opened.stop());
  const refusals = parts.adopt(createRefusalLog(options, store), (log) => log.stop());
  const signInFailures = parts.adopt(createSignInFailures(options, store), (opened) => opened.stop());
  const recorders = { conversationLog, refusals, lastUses, usageDays, signInFailures, resumptions };
  const tokenCounter = parts.adopt(new TokenCounter(options), (opened) => opened.stop());
  const limits = parts.adopt(await createLimits(config, options), (opened) => opened.stop());
  const overload = parts.adopt(createOverload(config, options), (opened) => opened.stop());
  const services = { store, ledger, tokenCounter, live, circuits, limits, overload, telemetry, ...recorders };
  const server = await createHttp(config, options, services);
  parts.defer(() => server.close(shutdown));
  const reloads = parts.adopt(new Reloads({ ...options, live, server, circuits }), (opened) => opened.stop());
  const address = await listen(server, config.server);
  await telemetry.start(gaugeSources(config, options, services, { server, reloads }));
  parts.defer(() => telemetry.detach());
  ownPort = address.port;
  const url = `${urlOf(address)}${config.server.basePath}`;
  await arrived;
  options.onServing?.();
  ledger.start();
  for (const part of [lastUses, signInFailures, healthFile, resumptions, usageDays, retention, refusals, overload]) {
    part.start();
  }
  conversationLog.start();
  const [{ firstOrganization, adminToken }] = await Promise.all([
    // When several processes start at once on an empty store, one creates everything and the others find it.
    store.runExclusively(async () => ({
      firstOrganization: await ensureFirstOrganization({ store, ledger, core }),
      adminToken: await firstAdminToken({ ...core, rows: store.admin }),
    })),
    live.catalog.start(),
  ]);
  reloads.start();
  const facts = { version: options.version, url, store: store.kind, models: live.catalog.list().length, adminToken };
  const running = parts.move();
  return {
    url,
    facts: { ...facts, organizationId: firstOrganization.organization.id, token: firstOrganization.token },
    catalog: live.catalog,
    firstOrganization,
    reload: () => reloads.reload("signal"),
    stop: async (stopOptions) => {
      shutdown = stopOptions;
      await running.disposeAsync();
    },
  };
}
