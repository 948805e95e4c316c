import { hostname } from "node:os";
import { targetFault } from "../admin/receivers.ts";
import { isPublicHost } from "../api/chat/image-address.ts";
import type { Config } from "../config.ts";
import type { Circuits } from "../gateway/circuit.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { createScrub } from "../providers/scrub.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { createOutage } from "../telemetry/outage.ts";
import { Dispatcher, type Sender } from "../warnings/dispatcher.ts";
import { mailSender } from "../warnings/mail.ts";
import { Watch } from "../warnings/watch.ts";
import { webhookSender } from "../warnings/webhook.ts";
import type { StartOptions } from "./parts.ts";
import { loadOptional } from "./parts.ts";
import type { LiveValues } from "./upstreams.ts";

type WarningSettings = Config["warnings"];

/** Returns why a receiver is refused with these settings; undefined if it is not. */
export function receiverFault(
  receiver: Pick<ReceiverRow, "organizationId" | "format" | "target">,
  { allowPrivateAddresses, smtp }: WarningSettings,
): string | undefined {
  if (receiver.format === "mail" && smtp === undefined) return "expected a webhook: warnings.smtp is not set";
  return targetFault(receiver, isPublicHost, allowPrivateAddresses);
}

/** Creates the delivery of warnings. Rejects with OperatorError if mail is configured and its package is not installed. */
export async function createWarnings(
  { warnings }: Config,
  { clock, log }: StartOptions,
  { store, live }: { store: Pick<Store, "events" | "accounts" | "monthlyStatements">; live: LiveValues },
): Promise<Dispatcher> {
  const allowsPrivate = () => live.config.warnings.allowPrivateAddresses;
  const webhooks = webhookSender({ allowsPrivate, clock });
  const mail = await createMail(warnings, log);
  const texts = {
    begins: "warnings cannot be delivered, because the store cannot be used: retried every second",
    lasts: "warnings still cannot be delivered",
    ends: "warnings can be delivered again",
  };
  return new Dispatcher({
    ...{ rows: store.events, accounts: store.accounts, statements: store.monthlyStatements, clock },
    settings: () => {
      const { statements, server } = live.config;
      return { mailsStatements: statements.mail, publicUrl: server.publicUrl };
    },
    senderOf: (format) => (format === "mail" ? mail : webhooks),
    outage: createOutage({ log, level: "warn", texts, clock }),
    close: async () => {
      await Promise.all([webhooks.close(), mail.close()]);
    },
  });
}

/** Creates the periodic checks of what no transaction notices. */
export function createWatch(
  { dataDir }: Config,
  { clock, log }: StartOptions,
  { store, live, circuits, ledger }: WatchParts,
): Watch {
  const texts = {
    begins: "warnings cannot be looked for: tried again every minute",
    lasts: "warnings still cannot be looked for",
    ends: "warnings are looked for again",
  };
  return new Watch({
    ...{ rows: store.events, usage: store.usage, node: `${hostname()}:${dataDir}`, clock },
    settings: () => live.config.warnings,
    routes: () => circuits.health(clock()),
    models: () => live.catalog.list(),
    priceChanges: (untilMs) => live.catalog.priceChanges(untilMs),
    deadLetters: async () => (await ledger.status()).deadLetters.entries,
    outage: createOutage({ log, level: "warn", texts, clock }),
  });
}

interface WatchParts {
  store: Pick<Store, "events" | "usage">;
  live: LiveValues;
  circuits: Pick<Circuits, "health">;
  ledger: Pick<Ledger, "status">;
}

async function createMail({ smtp, mailFrom }: WarningSettings, log: Log): Promise<Sender> {
  if (smtp === undefined || mailFrom === undefined) return mailSender(undefined);
  const { createTransport } = await loadOptional("warnings.smtp needs", "nodemailer", () => import("nodemailer"));
  return mailSender({ createTransport, createScrub, url: smtp, from: mailFrom, log });
}
