import { type AddressInfo, isIPv6 } from "node:net";
import { join } from "node:path";
import { Accounts, LastUses } from "./admin/accounts.ts";
import { AuditLog, SERVICE_ACTOR } from "./admin/audit.ts";
import { CreditAdjustments } from "./admin/credit-adjustments.ts";
import { Directory } from "./admin/directory.ts";
import { ensureFirstOrganization, type FirstOrganization } from "./admin/first-run.ts";
import { AdminKeys } from "./admin/idempotency-keys.ts";
import { firstAdminToken, Sessions, SignInFailures } from "./admin/sessions.ts";
import { ShortTokens } from "./admin/short-tokens.ts";
import type { RandomBytes } from "./admin/token.ts";
import { PLAYGROUND_ID } from "./api/principal.ts";
import type { LiveCatalog } from "./catalog/live.ts";
import type { Config } from "./config.ts";
import { usageReport } from "./credits/amount.ts";
import { OperatorError, StoreUnavailableError } from "./errors.ts";
import { OutputRates } from "./gateway/charge.ts";
import { Circuits } from "./gateway/circuit.ts";
import { RateLimiter } from "./gateway/limits.ts";
import { RetryBudget } from "./gateway/retry-budget.ts";
import { HealthFile } from "./gateway/route-health.ts";
import { TokenCounter } from "./gateway/token-counter.ts";
import type { AdminServices } from "./http/admin/endpoint.ts";
import { Authenticator } from "./http/authenticator.ts";
import { createServer, type Server } from "./http/server.ts";
import type { ShutdownOptions } from "./http/shutdown.ts";
import { requestId, uuidV7 } from "./internals/ids.ts";
import { disableIdleCollections, MemoryRelease, makeCollect } from "./internals/memory-release.ts";
import { ConversationLog } from "./ledger/conversation-log.ts";
import { DeadLetters, deadLetterFileOf } from "./ledger/dead-letter.ts";
import { Ledger } from "./ledger/ledger.ts";
import { Spool } from "./ledger/spool.ts";
import { Overviews } from "./reports/overview.ts";
import { RefusalLog } from "./reports/refusal-log.ts";
import { Conversations, Requests } from "./reports/requests.ts";
import { Statements } from "./reports/statement.ts";
import { DAY_MS, UsageDays } from "./reports/usage-days.ts";
import { type AwaitedStore, openServiceStore } from "./stores/open.ts";
import { directoryFailure, takeLock } from "./stores/sqlite/directory.ts";
import type { Store } from "./stores/store.ts";
import type { AccessLog, Log } from "./telemetry/logger.ts";
import { createCatalog, createUpstreams, type Upstreams } from "./upstreams.ts";

export interface StartOptions {
  version: string;
  log: Log;
  accessLog: AccessLog;
  /** Prints a line for the person at the terminal. */
  out(line: string): void;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
  /** Called before the first request can be served: from then on, a stop must let running answers end. */
  onServing?: () => void;
}

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
  const upstreams = parts.adopt(createUpstreams(config), (opened) => opened.close());
  let ownPort: number | undefined;
  const catalog = createCatalog(config, upstreams, { ...options, ownPort: () => ownPort });
  parts.defer(() => catalog.stop());
  const { store, arrived } = await openStoreOf(config, options);
  parts.defer(() => store.close());
  // Stopped after the ledger, so that charges are booked before anything else is written.
  const conversationLog = parts.adopt(createConversationLog(config, options, store), (opened) => opened.stop());
  const ledger = parts.adopt(await createLedger(config, options, store), (opened) => opened.stop());
  const accounts = createAccounts(options, store);
  const lastUses = parts.adopt(new LastUses({ rows: store.accounts, log: options.log }), (opened) => opened.stop());
  const circuits = new Circuits();
  const healthFile = parts.adopt(createHealthFile(config, options, circuits), (opened) => opened.stop());
  const usageDays = parts.adopt(new UsageDays({ ...options, rows: store.usage, books: store.books }), (opened) =>
    opened.stop(),
  );
  const refusals = parts.adopt(createRefusalLog(options, store), (log) => log.stop());
  const signInFailures = parts.adopt(createSignInFailures(options, store), (opened) => opened.stop());
  const recorders = { conversationLog, refusals, lastUses, usageDays, signInFailures };
  const tokenCounter = parts.adopt(new TokenCounter(options), (opened) => opened.stop());
  const services = { store, ledger, tokenCounter, catalog, upstreams, circuits, accounts, ...recorders };
  const server = await createHttp(config, options, services);
  parts.defer(() => server.close(shutdown));
  const address = await listen(server, config.server);
  ownPort = address.port;
  const url = `${urlOf(address)}${config.server.basePath}`;
  await arrived;
  options.onServing?.();
  ledger.start();
  lastUses.start();
  signInFailures.start();
  healthFile.start();
  usageDays.start();
  refusals.start();
  const requests = () => server.requests();
  const heapBytes = () => process.memoryUsage().heapTotal;
  disableIdleCollections();
  parts.adopt(new MemoryRelease({ requests, heapBytes, collect: makeCollect() }), (opened) => opened.stop()).start();
  conversationLog.start();
  const [{ firstOrganization, adminToken }] = await Promise.all([
    // When several processes start at once on an empty store, one creates everything and the others find it.
    store.runExclusively(async () => ({
      firstOrganization: await ensureFirstOrganization({ ...options, accounts, ledger, store }),
      adminToken: await firstAdminToken({ ...options, rows: store.admin, newId: newIdOf(options) }),
    })),
    catalog.start(),
  ]);
  const facts = { version: options.version, url, store: store.kind, models: catalog.list().length, adminToken };
  const running = parts.move();
  return {
    url,
    facts: { ...facts, organizationId: firstOrganization.organization.id, token: firstOrganization.token },
    catalog,
    firstOrganization,
    stop: async (stopOptions) => {
      shutdown = stopOptions;
      await running.disposeAsync();
    },
  };
}

const newIdOf =
  ({ clock }: StartOptions) =>
  () =>
    uuidV7(clock());

function createSignInFailures(options: StartOptions, { admin: rows }: Store): SignInFailures {
  return new SignInFailures({ ...options, rows, newId: newIdOf(options) });
}

function createAccounts(options: StartOptions, store: Store): Accounts {
  const { clock, random } = options;
  return new Accounts({ rows: store.accounts, clock, random, newId: newIdOf(options), actor: SERVICE_ACTOR });
}

function openStoreOf(config: Config, { clock, log, out }: StartOptions): Promise<AwaitedStore> {
  const { storeWaitSeconds } = config.server;
  const onAbsent = ({ message }: Error) => {
    out(
      `${message}. It is waited for, at most ${storeWaitSeconds} s; until it is there, every request is answered 503.`,
    );
    log.warn({ reason: message }, "the store cannot be reached: the start waits for it");
  };
  return openServiceStore({ ...config, clock, log, onAbsent, longestWaitMs: storeWaitSeconds * 1000 });
}

/** Share of a batch for SQLite, which runs in this process. PostgreSQL mostly waits for the network, whatever the length. */
const SQLITE_BATCH_SHARE = 1 / 2;

async function createLedger(
  config: Config,
  options: StartOptions,
  { kind, books, allowances }: Store,
): Promise<Ledger> {
  const { clock, log } = options;
  const { dataDir, ledger } = config;
  const random = fractions(options.random);
  const directory = join(dataDir, "spool");
  const spool = await Spool.open({ directory, takeLock, name: uuidV7(clock()), clock, random, log }).catch((error) => {
    throw directoryFailure(dataDir, error);
  });
  return new Ledger({
    books,
    allowances,
    spool,
    deadLetters: new DeadLetters({ file: deadLetterFileOf(dataDir), clock, log }),
    holdLifeMs: ledger.holdSeconds * 1000,
    recoveryMs: ledger.recoverySeconds * 1000,
    isShared: kind === "postgres",
    now: () => ({ monotonicMs: performance.now(), wallMs: clock() }),
    renewEveryMs: ledger.renewSeconds * 1000,
    sweepEveryMs: ledger.sweepSeconds * 1000,
    batchShare: kind === "sqlite" ? SQLITE_BATCH_SHARE : 1,
    clock,
    random,
    log,
  });
}

function createConversationLog({ conversations }: Config, { clock, log }: StartOptions, store: Store): ConversationLog {
  const { limitBytes } = conversations;
  return new ConversationLog({
    rows: store.conversations,
    retentionMs: retentionMsOf(conversations),
    limitBytes,
    clock,
    log,
  });
}

function retentionMsOf({ keepDays }: Config["conversations"]): number {
  return keepDays * DAY_MS;
}

function createHealthFile({ dataDir }: Config, { clock, log }: StartOptions, circuits: Circuits): HealthFile {
  return new HealthFile({ dataDir, name: uuidV7(clock()), health: (nowMs) => circuits.health(nowMs), clock, log });
}

/** Returns a function that makes random numbers from 0 up to 1. */
function fractions(random: RandomBytes): () => number {
  return () => Buffer.from(random(6)).readUIntBE(0, 6) / 2 ** 48;
}

function createRefusalLog(options: StartOptions, store: Store): RefusalLog {
  return new RefusalLog({ ...options, rows: store.refusals, newId: newIdOf(options) });
}

interface Services {
  store: Store;
  refusals: RefusalLog;
  ledger: Ledger;
  tokenCounter: TokenCounter;
  conversationLog: ConversationLog;
  catalog: LiveCatalog;
  upstreams: Upstreams;
  circuits: Circuits;
  accounts: Accounts;
  lastUses: LastUses;
  usageDays: UsageDays;
  signInFailures: SignInFailures;
}

function createHttp(config: Config, options: StartOptions, services: Services): Promise<Server> {
  const { clock, log, version } = options;
  const { store, ledger, conversationLog, tokenCounter, catalog, upstreams, circuits, lastUses } = services;
  const limits = new RateLimiter(clock);
  const { providers } = upstreams;
  const { limits: limitSettings, playground, completions } = config;
  const settings = { limits, limitSettings, playground, completionMaxTokens: completions.maxTokens };
  const routing = { circuits, retryBudget: new RetryBudget(), random: fractions(options.random) };
  return createServer({
    gateway: {
      catalog,
      ledger,
      conversations: conversationLog,
      providers,
      ...settings,
      ...routing,
      tokenCounter,
      outputRates: new OutputRates(),
      clock,
      newId: newIdOf(options),
      log,
    },
    authenticator: new Authenticator({
      rows: store.accounts,
      clock,
      noteUse: (...use) => lastUses.note(...use),
    }),
    admin: adminServices(config, options, services),
    completionMessages: config.completions.messages,
    usageReport: async (organizationId) => {
      const balance = await ledger.balance(organizationId);
      if (balance === undefined) throw new Error(`There is no balance of ${organizationId}`);
      return usageReport(balance);
    },
    version,
    trustProxy: config.server.trustProxy,
    basePath: config.server.basePath,
    bodyLimitBytes: config.server.bodyLimitBytes,
    bodiesInFlightBytes: config.server.bodiesInFlightBytes,
    ping: async () => {
      if (ledger.isRefusing) throw new StoreUnavailableError("The store takes no holds.");
      await store.ping();
    },
    ledgerStatus: () => ledger.status(),
    newRequestId: requestId,
    accessLog: options.accessLog,
    refusals: services.refusals,
    log,
  });
}

function adminServices(
  { limits, playground, completions, conversations: settings }: Config,
  options: StartOptions,
  { store, ledger, accounts, usageDays, lastUses, signInFailures }: Services,
): Omit<AdminServices, "gateway"> {
  const { clock, random, version, log } = options;
  const rows = store.admin;
  const newId = newIdOf(options);
  const conversations = new Conversations({ rows: store.conversations, retentionMs: retentionMsOf(settings), clock });
  return {
    sessions: new Sessions({
      rows,
      accounts: store.accounts,
      failures: signInFailures,
      noteUse: (...use) => lastUses.note(...use),
      clock,
      random,
      newId,
    }),
    shortTokens: new ShortTokens({ rows, accounts: store.accounts, clock, random, newId }),
    accounts,
    keys: new AdminKeys({ rows, log }),
    directory: new Directory({ rows: store.directory, clock }),
    audit: new AuditLog({ rows, clock, newId }),
    requests: new Requests({ holds: store.requests, refusals: store.refusals, conversations }),
    conversations,
    statements: new Statements(store.books),
    creditAdjustments: new CreditAdjustments({ ...store, bookings: ledger, clock, random, newId }),
    overviews: new Overviews({ rows: store.usage, days: usageDays, clock }),
    clock,
    facts: {
      object: "service",
      version,
      guest_playground: {
        open: playground.openToGuests,
        organization_id: PLAYGROUND_ID,
        requests_per_minute: playground.requestsPerMinute,
        tokens_per_day: playground.tokensPerDay,
        max_tokens: playground.maxTokens,
      },
      default_limits: {
        requests_per_minute: limits.requestsPerMinute,
        tokens_per_minute: limits.tokensPerMinute,
        concurrent_requests: limits.concurrentRequests,
      },
      completions: { max_tokens: completions.maxTokens === "model" ? null : completions.maxTokens },
      conversation_days: settings.keepDays,
    },
  };
}

async function listen(server: Server, { host, port }: Config["server"]): Promise<AddressInfo> {
  try {
    return await server.listen({ host, port });
  } catch (error) {
    const reason = LISTEN_FAILURES[(error as NodeJS.ErrnoException).code ?? ""];
    if (reason === undefined) throw error;
    throw new OperatorError(`cannot listen on port ${port} of ${host}: ${reason}`, { cause: error });
  }
}

/** Returns a URL to open on this machine; a service that listens on every address is reached through loopback. */
function urlOf({ address, port }: AddressInfo): string {
  const name = { "0.0.0.0": "127.0.0.1", "::": "localhost" }[address] ?? (isIPv6(address) ? `[${address}]` : address);
  return `http://${name}:${port}`;
}

const LISTEN_FAILURES: Record<string, string> = {
  EADDRINUSE: "another program listens there; choose another port with --port, PORT or server.port",
  EACCES: "this user may not; choose a port above 1023 with --port, PORT or server.port",
  EADDRNOTAVAIL: "this machine has no such address; choose another with --host, HOST or server.host",
  ENOTFOUND: "there is no such host; choose another with --host, HOST or server.host",
  EAI_AGAIN: "the name cannot be resolved now; name an address with --host, HOST or server.host",
  EINVAL: "this is no address to listen on; choose another with --host, HOST or server.host",
};
