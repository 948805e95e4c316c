import { type AddressInfo, isIPv6 } from "node:net";
import { auditLogOver } from "../admin/audit.ts";
import { directoryOver } from "../admin/directory.ts";
import { adminKeysOver } from "../admin/idempotency-keys.ts";
import { Identities } from "../admin/identities.ts";
import type { IssuerKeys } from "../admin/issuer-keys.ts";
import type { LastUses } from "../admin/last-uses.ts";
import { labelOf, OpenIdSignIn } from "../admin/openid-sign-in.ts";
import { Sessions, type SignInFailures } from "../admin/sessions.ts";
import { shortTokensOver } from "../admin/short-tokens.ts";
import { pick } from "../api/json.ts";
import { inSnakeCase } from "../api/names.ts";
import { PLAYGROUND_ID } from "../api/principal.ts";
import { givesAccess } from "../config/identity.ts";
import type { Config } from "../config.ts";
import { creditsJson, creditsOf } from "../credits/amount.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { AnswerMemory } from "../gateway/answer-memory.ts";
import { OutputRates } from "../gateway/charge.ts";
import type { Circuits } from "../gateway/circuit.ts";
import type { RateLimiter } from "../gateway/limits.ts";
import { RetryBudget } from "../gateway/retry-budget.ts";
import type { TokenCounter } from "../gateway/token-counter.ts";
import type { AdminServices } from "../http/admin/index.ts";
import { Authenticator } from "../http/authentication.ts";
import type { Overload } from "../http/overload.ts";
import type { PaymentReceiver } from "../http/payment-webhook.ts";
import { createServer, type Server, type ServerSettings } from "../http/server.ts";
import { requestId } from "../internals/ids.ts";
import type { ConversationLog } from "../ledger/conversation-log.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { responseItemsOver } from "../ledger/response-items.ts";
import { type Checkouts, coreRows } from "../operations/core.ts";
import { callerBudgets } from "../reports/budgets.ts";
import { Overviews } from "../reports/overview.ts";
import type { RefusalLog } from "../reports/refusal-log.ts";
import { conversationsOver, requestsOver } from "../reports/requests.ts";
import { Statements } from "../reports/statement.ts";
import type { UsageDays } from "../reports/usage-days.ts";
import type { Store } from "../stores/store.ts";
import { fractions, newIdOf, type StartOptions } from "./parts.ts";
import type { Resumptions } from "./resumptions.ts";
import type { Telemetry } from "./telemetry/telemetry.ts";
import type { LiveValues } from "./upstreams.ts";
import { receiverFault } from "./warnings.ts";

export interface Services {
  store: Store;
  refusals: RefusalLog;
  ledger: Ledger;
  tokenCounter: TokenCounter;
  conversationLog: ConversationLog;
  live: LiveValues;
  circuits: Circuits;
  resumptions: Resumptions;
  limits: RateLimiter;
  lastUses: LastUses;
  usageDays: UsageDays;
  signInFailures: SignInFailures;
  issuerKeys: IssuerKeys;
  overload: Overload;
  telemetry: Telemetry;
  checkouts: Checkouts | undefined;
  payments?: PaymentReceiver;
}

/** Returns the settings of the server that a reload replaces. */
export function serverSettingsOf({ config, catalog, upstreams }: LiveValues, version: string): ServerSettings {
  const { identity, limits, playground, completions, conversations } = config;
  const facts = {
    object: "service" as const,
    version,
    identity_providers: identity.issuers
      .filter(({ clientId }) => clientId !== undefined)
      .map((issuer) => ({ issuer: issuer.issuer, name: labelOf(issuer) })),
    guest_playground: {
      ...{ open: playground.openToGuests, organization_id: PLAYGROUND_ID },
      ...inSnakeCase(pick(playground, ["requestsPerMinute", "tokensPerDay", "maxTokens"])),
    },
    default_limits: inSnakeCase(pick(limits, ["requestsPerMinute", "tokensPerMinute", "concurrentRequests"])),
    completions: { max_tokens: typeof completions.maxTokens === "string" ? null : completions.maxTokens },
    conversation_days: conversations.keepDays,
  };
  const { providers } = upstreams;
  const gateway = { catalog, providers, limitSettings: limits, playground, completionMaxTokens: completions.maxTokens };
  return { gateway, completions, facts };
}

export function createHttp(config: Config, options: StartOptions, services: Services): Promise<Server> {
  const { clock, log, version, accessLog } = options;
  const { store, ledger, conversationLog: conversations, live, circuits, limits, lastUses } = services;
  const { refusals, overload, telemetry, tokenCounter } = services;
  const { gateway: settings, completions, facts } = serverSettingsOf(live, version);
  const { port, token } = config.metrics;
  const { read } = telemetry;
  const authenticator = new Authenticator({
    rows: store.accounts,
    clock,
    noteUse: (...use) => lastUses.note(...use),
    givesAccess: (person) => givesAccess(live.config.identity.issuers, person),
  });
  const identities = new Identities({
    ...{ rows: store.identities, accounts: store.accounts, keys: services.issuerKeys, clock, newId: newIdOf(options) },
    issuers: () => live.config.identity.issuers,
    authenticate: (hash) => authenticator.authenticate(hash),
  });
  return createServer({
    ...{ ...config.server, version, log, accessLog, refusals, overload },
    gateway: {
      ...{ ...settings, limits, ledger, conversations, circuits, tokenCounter, clock, log },
      retryBudget: new RetryBudget(),
      random: fractions(options.random),
      outputRates: new OutputRates(),
      answerMemory: new AnswerMemory(),
      longTasks: new FairTurns(1, () => performance.now()),
      newId: newIdOf(options),
    },
    authenticator,
    identities,
    admin: { ...adminServices(options, services), facts },
    completions,
    paymentReceiver: services.payments,
    usageReport: async (caller) => {
      const balance = await ledger.balance(caller.organizationId);
      if (balance === undefined) throw new Error(`There is no balance of ${caller.organizationId}`);
      const report = {
        object: "usage",
        organization_id: caller.organizationId,
        ...creditsJson(creditsOf(balance)),
      } as const;
      return { ...report, ...(await callerBudgets(store.budgets, caller, balance.available)) };
    },
    ping: async () => {
      if (ledger.isRefusing) throw new StoreUnavailableError("The store takes no holds.");
      await store.ping();
    },
    ledgerStatus: () => ledger.status(),
    ...(config.redis !== null && { limitsStatus: () => limits.status() }),
    newRequestId: () => requestId(clock()),
    observe: telemetry.observeRequest,
    // Only with a token, and without a port of their own.
    metrics: port === undefined && token !== undefined && read !== undefined ? { token, read } : undefined,
  });
}

function adminServices(
  options: StartOptions,
  { live, store, ledger, usageDays, lastUses, signInFailures, resumptions, checkouts }: Services,
): Omit<AdminServices, "gateway" | "identities" | "facts"> {
  const { clock, random, log } = options;
  const rows = coreRows(store);
  const { accounts, admin } = rows;
  const core = { accounts, clock, random, newId: newIdOf(options) };
  const conversations = conversationsOver({ rows: store.conversations, live, clock });
  const openIdSignIn = new OpenIdSignIn({
    ...core,
    identities: store.identities,
    issuers: () => live.config.identity.issuers,
    log,
  });
  return {
    ...rows,
    ...core,
    openIdSignIn,
    checkouts: async () => checkouts,
    modelIds: () => live.catalog.list().map(({ id }) => id),
    priceLists: async () => [...live.catalog.byPriceList.keys()],
    requestMonths: async () => live.config.retention.requestMonths,
    issuers: async () => live.config.identity.issuers,
    receiverFault: async (receiver) => receiverFault(receiver, live.config.warnings),
    responseItems: responseItemsOver({ rows: store.responseItems, live, clock, log }),
    book: ledger.book,
    sessions: new Sessions({
      ...core,
      rows: admin,
      failures: signInFailures,
      isAdmitted: (person) => openIdSignIn.admits(person),
      noteUse: (...use) => lastUses.note(...use),
    }),
    shortTokens: shortTokensOver({ ...core, rows: admin }),
    keys: adminKeysOver({ rows: admin, log }),
    directory: directoryOver({ rows: store.directory, clock }),
    audit: auditLogOver({ ...core, rows: admin }),
    requests: requestsOver({ holds: store.requests, refusals: store.refusals, conversations }),
    conversations,
    statements: new Statements(store.books),
    overviews: new Overviews({
      ...{ rows: store.usage, refusals: store.refusals, days: usageDays, clock },
      perDollar: () => live.config.credits.perDollar,
    }),
    resumptions,
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
