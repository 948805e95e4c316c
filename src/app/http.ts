import { type AddressInfo, isIPv6 } from "node:net";
import type { Accounts, LastUses } from "../admin/accounts.ts";
import { AuditLog } from "../admin/audit.ts";
import { CreditAdjustments } from "../admin/credit-adjustments.ts";
import { Directory } from "../admin/directory.ts";
import { AdminKeys } from "../admin/idempotency-keys.ts";
import { Sessions, type SignInFailures } from "../admin/sessions.ts";
import { ShortTokens } from "../admin/short-tokens.ts";
import { PLAYGROUND_ID } from "../api/principal.ts";
import type { LiveCatalog } from "../catalog/live.ts";
import type { Config } from "../config.ts";
import { usageReport } from "../credits/amount.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { OutputRates } from "../gateway/charge.ts";
import type { Circuits } from "../gateway/circuit.ts";
import { RateLimiter } from "../gateway/limits.ts";
import { RetryBudget } from "../gateway/retry-budget.ts";
import type { TokenCounter } from "../gateway/token-counter.ts";
import type { AdminServices } from "../http/admin/endpoint.ts";
import { Authenticator } from "../http/authenticator.ts";
import type { Overload } from "../http/overload.ts";
import { createServer, type Server } from "../http/server.ts";
import { requestId } from "../internals/ids.ts";
import type { ConversationLog } from "../ledger/conversation-log.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { Overviews } from "../reports/overview.ts";
import type { RefusalLog } from "../reports/refusal-log.ts";
import { Conversations, Requests } from "../reports/requests.ts";
import { Statements } from "../reports/statement.ts";
import type { UsageDays } from "../reports/usage-days.ts";
import type { Store } from "../stores/store.ts";
import { fractions, newIdOf, retentionMsOf, type StartOptions } from "./parts.ts";
import type { Upstreams } from "./upstreams.ts";

export interface Services {
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
  overload: Overload;
}

export function createHttp(config: Config, options: StartOptions, services: Services): Promise<Server> {
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
    maxConnections: config.server.maxConnections,
    overload: services.overload,
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

export async function listen(server: Server, { host, port }: Config["server"]): Promise<AddressInfo> {
  try {
    return await server.listen({ host, port });
  } catch (error) {
    const reason = LISTEN_FAILURES[(error as NodeJS.ErrnoException).code ?? ""];
    if (reason === undefined) throw error;
    throw new OperatorError(`cannot listen on port ${port} of ${host}: ${reason}`, { cause: error });
  }
}

/** Returns a URL to open on this machine; a service that listens on every address is reached through loopback. */
export function urlOf({ address, port }: AddressInfo): string {
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
