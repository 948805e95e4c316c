import { type AddressInfo, isIPv6 } from "node:net";
import { join } from "node:path";
import { Accounts } from "./admin/accounts.ts";
import { firstAdminToken } from "./admin/admin-tokens.ts";
import { SERVICE_ACTOR } from "./admin/audit.ts";
import { AuditLog } from "./admin/audit-log.ts";
import { CreditDesk } from "./admin/credit-adjustments.ts";
import { Directory } from "./admin/directory.ts";
import { firstRun } from "./admin/first-run.ts";
import { AdminKeys } from "./admin/idempotency-keys.ts";
import { LastUses } from "./admin/last-uses.ts";
import { Sessions } from "./admin/sessions.ts";
import { ShortTokens } from "./admin/short-tokens.ts";
import { SignInFailures } from "./admin/sign-in-failures.ts";
import { makeId, type RandomBytes } from "./admin/token.ts";
import { PLAYGROUND_ID } from "./api/principal.ts";
import type { LiveCatalog } from "./catalog/live.ts";
import { printStart } from "./cli/start-report.ts";
import type { Config } from "./config.ts";
import { OperatorError, StoreUnavailableError } from "./errors.ts";
import { OutputRates } from "./gateway/charge.ts";
import { Circuits } from "./gateway/circuit.ts";
import { Limits } from "./gateway/limits.ts";
import { RetryBudget } from "./gateway/retry-budget.ts";
import { HealthFile } from "./gateway/route-health.ts";
import { TokenCounter } from "./gateway/token-counter.ts";
import type { AdminServices } from "./http/admin/endpoint.ts";
import { Authenticator } from "./http/authenticator.ts";
import { createServer, type Server } from "./http/server.ts";
import type { ShutdownOptions } from "./http/shutdown.ts";
import { requestId, uuidV7 } from "./internals/ids.ts";
import { disableIdleCollections, MemoryRelease, makeCollect } from "./internals/memory-release.ts";
import { ConversationKeeper } from "./ledger/conversation-log.ts";
import { Quarantine, quarantineFileOf } from "./ledger/dead-letter.ts";
import { Ledger } from "./ledger/ledger.ts";
import { Spool } from "./ledger/spool/spool.ts";
import { Conversations } from "./reports/conversations.ts";
import { Overviews } from "./reports/overview.ts";
import { RefusalLog } from "./reports/refusal-log.ts";
import { Requests } from "./reports/requests.ts";
import { Statements } from "./reports/statement.ts";
import { DAY_MS, UsageDays } from "./reports/usage-days.ts";
import { usageReport } from "./reports/usage-report.ts";
import type { AwaitedStore } from "./stores/absent.ts";
import { openServiceStore } from "./stores/open.ts";
import { directoryFailure } from "./stores/sqlite/directory.ts";
import { takeLock } from "./stores/sqlite/lock.ts";
import type { Store } from "./stores/store.ts";
import { watchStore } from "./stores/watched-store.ts";
import type { AccessLog, Log } from "./telemetry/logger.ts";
import { createCatalog, createUpstreams, type Upstreams } from "./upstreams.ts";

export interface Surroundings {
  version: string;
  log: Log;
  accessLog: AccessLog;
  /** Takes what a person at the terminal is told, line by line. */
  out(line: string): void;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
  /** Destination of the admin token of a first start: a line of `out`, or a file in the data directory. */
  adminTokenTo: "output" | "file";
  /** Called before the first request can be served: the start goes on, and whoever stops it must let answers end. */
  onServing?: () => void;
}

/** What a start tells, for programs. */
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
  /** Takes nothing new, lets running answers end, books what is left, and closes everything. */
  stop(options: ShutdownOptions): Promise<void>;
}

/**
 * Puts the service together and starts it. On a store without an organization it makes the first one, with credits and
 * a token. Rejects with OperatorError where the configuration, the store or the address cannot be used.
 */
export async function startService(config: Config, surroundings: Surroundings): Promise<RunningService> {
  // Whatever is open when a step fails is closed again, the last first; so does a stop.
  await using parts = new AsyncDisposableStack();
  let shutdown: ShutdownOptions = { delayMs: 0, drainMs: 0 };
  const upstreams = parts.adopt(createUpstreams(config), (opened) => opened.close());
  let ownPort: number | undefined;
  const catalog = createCatalog(config, upstreams, { ...surroundings, ownPort: () => ownPort });
  parts.defer(() => catalog.stop());
  const { store: opened, arrived } = await openStoreOf(config, surroundings);
  parts.defer(() => opened.close());
  const store = watchStore(opened, surroundings);
  // Stopped after the ledger: what is owed is booked before anything else is written.
  const keeper = parts.adopt(createKeeper(config, surroundings, store), (opened) => opened.stop());
  const ledger = parts.adopt(await createLedger(config, surroundings, store), (opened) => opened.stop());
  const accounts = createAccounts(surroundings, store);
  const lastUses = parts.adopt(new LastUses({ rows: store.accounts, log: surroundings.log }), (opened) =>
    opened.stop(),
  );
  const circuits = new Circuits();
  const healthFile = parts.adopt(createHealthFile(config, surroundings, circuits), (opened) => opened.stop());
  const usageDays = parts.adopt(new UsageDays({ ...surroundings, rows: store.usage, books: store.books }), (opened) =>
    opened.stop(),
  );
  const refusals = parts.adopt(createRefusalLog(surroundings, store), (log) => log.stop());
  const signInFailures = parts.adopt(createSignInFailures(surroundings, store), (opened) => opened.stop());
  const recorders = { refusals, lastUses, usageDays, signInFailures };
  const tokenCounter = parts.adopt(new TokenCounter(surroundings), (opened) => opened.stop());
  const services = { store, ledger, keeper, tokenCounter, catalog, upstreams, circuits, accounts, ...recorders };
  const server = await createHttp(config, surroundings, services);
  parts.defer(() => server.close(shutdown));
  const address = await listen(server, config.server);
  ownPort = address.port;
  const url = `${urlOf(address)}${config.server.basePath}`;
  await arrived;
  surroundings.onServing?.();
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
  keeper.start();
  const [{ standing, adminToken }] = await Promise.all([
    // Of several that start at once on an empty store one makes all of it; the others find it finished.
    store.inTurn(async () => ({
      standing: await firstRun({ ...surroundings, accounts, ledger, store }),
      adminToken: await firstAdminToken({ ...surroundings, rows: store.admin, newId: newIdOf(surroundings) }),
    })),
    catalog.start(),
  ]);
  const facts = { version: surroundings.version, url, store: store.kind, models: catalog.list().length, adminToken };
  printStart(config, surroundings.out, { ...facts, ...surroundings, catalog, standing });
  const running = parts.move();
  return {
    url,
    facts: { ...facts, organizationId: standing.organization.id, token: standing.token },
    stop: async (options) => {
      shutdown = options;
      await running.disposeAsync();
    },
  };
}

const newIdOf =
  ({ clock }: Surroundings) =>
  () =>
    uuidV7(clock());

function createSignInFailures(surroundings: Surroundings, { admin: rows }: Store): SignInFailures {
  return new SignInFailures({ ...surroundings, rows, newId: newIdOf(surroundings) });
}

function createAccounts(surroundings: Surroundings, store: Store): Accounts {
  const { clock, random } = surroundings;
  return new Accounts({ rows: store.accounts, clock, random, newId: newIdOf(surroundings), actor: SERVICE_ACTOR });
}

function openStoreOf(config: Config, { clock, log, out }: Surroundings): Promise<AwaitedStore> {
  const { storeWaitSeconds } = config.server;
  const onAbsent = ({ message }: Error) => {
    out(
      `${message}. It is waited for, at most ${storeWaitSeconds} s; until it is there, every request is answered 503.`,
    );
    log.warn({ reason: message }, "the store cannot be reached: the start waits for it");
  };
  return openServiceStore({ ...config, clock, onAbsent, longestWaitMs: storeWaitSeconds * 1000 });
}

/** Of batches for a thread of this process; PostgreSQL mostly waits for the network, whatever their length. */
const SQLITE_BATCH_SHARE = 1 / 2;

async function createLedger(
  config: Config,
  surroundings: Surroundings,
  { kind, books, allowances }: Store,
): Promise<Ledger> {
  const { clock, log } = surroundings;
  const { dataDir, ledger } = config;
  const random = fractions(surroundings.random);
  const directory = join(dataDir, "spool");
  const spool = await Spool.open({ directory, takeLock, name: uuidV7(clock()), clock, random, log }).catch((error) => {
    throw directoryFailure(dataDir, error);
  });
  return new Ledger({
    books,
    allowances,
    spool,
    quarantine: new Quarantine({ file: quarantineFileOf(dataDir), clock, log }),
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

function createKeeper({ conversations }: Config, { clock, log }: Surroundings, store: Store): ConversationKeeper {
  const { limitBytes } = conversations;
  return new ConversationKeeper({ rows: store.conversations, keptMs: keptMsOf(conversations), limitBytes, clock, log });
}

function keptMsOf({ keepDays }: Config["conversations"]): number {
  return keepDays * DAY_MS;
}

function createHealthFile({ dataDir }: Config, { clock, log }: Surroundings, circuits: Circuits): HealthFile {
  return new HealthFile({ dataDir, name: uuidV7(clock()), health: (nowMs) => circuits.health(nowMs), clock, log });
}

/** Numbers from 0 up to 1. */
function fractions(random: RandomBytes): () => number {
  return () => Buffer.from(random(6)).readUIntBE(0, 6) / 2 ** 48;
}

function createRefusalLog(surroundings: Surroundings, store: Store): RefusalLog {
  return new RefusalLog({ ...surroundings, rows: store.refusals, newId: newIdOf(surroundings) });
}

interface Services {
  store: Store;
  refusals: RefusalLog;
  ledger: Ledger;
  tokenCounter: TokenCounter;
  keeper: ConversationKeeper;
  catalog: LiveCatalog;
  upstreams: Upstreams;
  circuits: Circuits;
  accounts: Accounts;
  lastUses: LastUses;
  usageDays: UsageDays;
  signInFailures: SignInFailures;
}

function createHttp(config: Config, surroundings: Surroundings, services: Services): Promise<Server> {
  const { clock, log, version } = surroundings;
  const { store, ledger, keeper, tokenCounter, catalog, upstreams, circuits, lastUses } = services;
  const limits = new Limits(clock);
  const { providers } = upstreams;
  const { limits: limitSettings, playground, completions } = config;
  const settings = { limits, limitSettings, playground, completionMaxTokens: completions.maxTokens };
  const routing = { circuits, retryBudget: new RetryBudget(), random: fractions(surroundings.random) };
  return createServer({
    gateway: {
      catalog,
      ledger,
      conversations: keeper,
      providers,
      ...settings,
      ...routing,
      tokenCounter,
      outputRates: new OutputRates(),
      clock,
      newId: newIdOf(surroundings),
      log,
    },
    authenticator: new Authenticator({
      rows: store.accounts,
      clock,
      noteUse: (...use) => lastUses.note(...use),
    }),
    admin: adminServices(config, surroundings, services),
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
    standing: () => ledger.standing(),
    newRequestId: requestId,
    accessLog: surroundings.accessLog,
    refusals: services.refusals,
    log,
  });
}

function adminServices(
  { limits, playground, completions, conversations: settings }: Config,
  surroundings: Surroundings,
  { store, ledger, accounts, usageDays, lastUses, signInFailures }: Services,
): Omit<AdminServices, "gateway"> {
  const { clock, random, version, log } = surroundings;
  const rows = store.admin;
  const newId = newIdOf(surroundings);
  const conversations = new Conversations({ rows: store.conversations, keptMs: keptMsOf(settings), clock });
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
    creditDesk: new CreditDesk({ ...store, ledger, clock, makeId: (kind) => makeId(kind, random) }),
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

/** An address to paste on this machine; a service that listens everywhere is reached at home. */
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
