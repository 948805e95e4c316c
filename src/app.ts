import { SERVICE_ACTOR } from "./admin/audit.ts";
import { createLastUses } from "./admin/last-uses.ts";
import { firstAdminToken } from "./admin/operators.ts";
import { createSignInFailures } from "./admin/sessions.ts";
import { ensureFirstOrganization } from "./app/first-run.ts";
import { createHttp, listen, urlOf } from "./app/http.ts";
import {
  createIssuerKeys,
  createLedger,
  createLimits,
  createOverload,
  createRetention,
  newIdOf,
  openStoreOf,
  type StartOptions,
} from "./app/parts.ts";
import { createPayments } from "./app/payments.ts";
import { Reloads } from "./app/reload.ts";
import { createResumptions } from "./app/resumptions.ts";
import { createTelemetry } from "./app/telemetry/telemetry.ts";
import { LiveParts } from "./app/upstreams.ts";
import { createWarnings, createWatch } from "./app/warnings.ts";
import type { Config } from "./config.ts";
import { Circuits } from "./gateway/circuit.ts";
import { HealthFile } from "./gateway/route-health.ts";
import { TokenCounter } from "./gateway/token-counter.ts";
import type { ShutdownOptions } from "./http/shutdown.ts";
import { ConversationLog } from "./ledger/conversation-log.ts";
import { RefusalLog } from "./reports/refusal-log.ts";
import { UsageDays } from "./reports/usage-days.ts";

/** A service that runs. Its tokens are known only on the start that has created them. A reload never rejects. */
export type RunningService = Awaited<ReturnType<typeof startService>>;

/** Composes and starts the service. Rejects with OperatorError where the configuration, the store or the address cannot be used. */
export async function startService(config: Config, options: StartOptions) {
  // When a step fails, everything opened so far is closed in reverse order. A stop does the same.
  await using parts = new AsyncDisposableStack();
  const own = <Part extends { stop(): Promise<void> | void }>(part: Part) =>
    parts.adopt(part, (opened) => opened.stop());
  let shutdown: ShutdownOptions = { delayMs: 0, drainMs: 0 };
  let ownPort: number | undefined;
  const live = parts.adopt(new LiveParts(config, { ...options, ownPort: () => ownPort }), (opened) => opened.close());
  const telemetry = own(await createTelemetry(config, { ...options, live }));
  const { store, arrived } = await openStoreOf(config, options, () => live.database);
  parts.defer(() => store.close());
  // Stopped after the ledger, so that charges are booked before anything else is written.
  const conversationLog = own(new ConversationLog({ ...options, rows: store.conversations, live }));
  const ledger = own(await createLedger(config, options, store, telemetry.ledger));
  const newId = newIdOf(options);
  const core = { ...options, ...store, book: ledger.book, actor: SERVICE_ACTOR, newId };
  const lastUses = own(createLastUses({ rows: store.accounts, log: options.log }));
  const circuits = new Circuits();
  const routes = { dataDir: config.dataDir, name: newId(), health: (nowMs: number) => circuits.health(nowMs) };
  const healthFile = own(new HealthFile({ ...options, ...routes }));
  const resumptions = own(createResumptions({ ...options, rows: store.admin, circuits }));
  const usageDays = own(new UsageDays({ ...options, rows: store.usage, books: store.books }));
  const retention = own(createRetention(options, { store, live, usageDays, ledger }));
  const refusals = own(new RefusalLog({ ...options, rows: store.refusals, newId }));
  const issuerKeys = own(createIssuerKeys(options, store, live));
  const signInFailures = own(createSignInFailures({ ...options, rows: store.admin, newId }));
  const recorders = { conversationLog, refusals, lastUses, usageDays, signInFailures, issuerKeys, resumptions };
  const dispatcher = own(await createWarnings(config, options, { store, live }));
  const watch = own(createWatch(config, options, { store, live, circuits, ledger }));
  const { topUps, ...money } = await createPayments(config, { ...core, rows: store.payments, own });
  const tokenCounter = own(new TokenCounter(options));
  const limits = own(await createLimits(config, options));
  const overload = own(createOverload(config, options));
  const services = { store, ledger, tokenCounter, live, circuits, limits, overload, telemetry, ...money, ...recorders };
  const server = await createHttp(config, options, services);
  parts.defer(() => server.close(shutdown));
  const reloads = own(new Reloads({ ...options, live, server, circuits }));
  const address = await listen(server, config.server);
  await telemetry.start({ ...services, server, reloads, clock: options.clock, holdTimes: config.ledger });
  parts.defer(() => telemetry.detach());
  ownPort = address.port;
  const url = `${urlOf(address)}${config.server.basePath}`;
  await arrived;
  options.onServing?.();
  ledger.start();
  const background = [lastUses, signInFailures, issuerKeys, healthFile, resumptions, usageDays, retention, refusals];
  for (const part of [...background, topUps, dispatcher, watch, overload]) part?.start();
  const [{ firstOrganization, adminToken }] = await Promise.all([
    // When several processes start at once on an empty store, one creates everything and the others find it.
    store.runExclusively(async () => ({
      firstOrganization: await ensureFirstOrganization({ store, core }),
      adminToken: await firstAdminToken({ ...core, admin: store.admin }),
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
    stop: async (stopOptions: ShutdownOptions): Promise<void> => {
      shutdown = stopOptions;
      await running.disposeAsync();
    },
  };
}
