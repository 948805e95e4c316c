import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { ServiceProcess } from "../../support/service.ts";
import type { Call, Sent } from "../client.ts";
import { keepCalling, mixedCalls, scriptOf, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";
import { mustBeCut } from "./partitions.ts";

const STREAMS = 10;
const ALONE = 5;
const ALONE_LONGEST_MS = 1_000;
const STOPS_MAX = 500;
const OPEN_FOR_MS = 100;
const IDLE_TRANSACTIONS = `SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'
  AND state_change < clock_timestamp() - $1 * interval '1 millisecond'`;

/** Suspends a node in the middle of a transaction, under load. Meanwhile the other node serves all requests. */
export function freeze(lasts: "for a moment" | "for longer than the life of a hold") {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const other = await site.startNeighbor();
    try {
      const running = site.send(waitingStreams(random, `${trial}.waiting`, STREAMS, site));
      await Promise.all(running.map(({ status }) => status));
      const unaffected = await site.makeOrganization("1");
      const stopCalling = keepCalling(site, random, trial, 3 * STREAMS);
      await stopInTransaction(site, random);
      const called = stopCalling();
      const share = lasts === "for a moment" ? 0.3 : 1.2;
      const over = sleep(share * site.limits.holdLifeMs);
      const served = mixedCalls(random, `${trial}.other`, 4 * STREAMS, site).map((call) => {
        return site.clients.send(other.baseUrl, call);
      });
      await serveAlone(site, other, `${trial}.alone`, unaffected);
      await over;
      site.service.child.kill("SIGCONT");
      await site.letGo(`${trial}.waiting`);
      await Promise.all([all(running), called, all(served)]);
      await site.untilReady();
      if (lasts !== "for a moment") mustBeCut(site, `${trial}.waiting`);
      for (const name of [trial, `${trial}.waiting`])
        site.addTrial(name, { storeWasUnavailable: true, wasSuspended: true });
      for (const name of [`${trial}.other`, `${trial}.alone`]) site.addTrial(name, {});
      await site.judge({ all: true });
    } finally {
      site.service.child.kill("SIGCONT");
      await other.end("SIGTERM");
    }
  };
}

/** Checks that an organization that the suspended node did not serve is not affected. */
async function serveAlone(
  site: Site,
  other: ServiceProcess,
  trial: string,
  organization: Call["organization"],
): Promise<void> {
  for (let index = 0; index < ALONE; index += 1) {
    const sentAt = performance.now();
    const script = scriptOf(`${trial}-${index}`, { words: 1 });
    const sent = site.clients.send(other.baseUrl, { script, streamed: false, organization });
    await sent.ended;
    const tookMs = performance.now() - sentAt;
    if ((await sent.status) !== 200) throw new Error(`another organization was answered ${await sent.status}`);
    if (tookMs > ALONE_LONGEST_MS + site.limits.slackMs) throw new Error(`another organization waited ${tookMs} ms`);
  }
}

/** Suspends the service repeatedly until it has a transaction open. */
async function stopInTransaction({ service, postgres }: Site, random: Random): Promise<void> {
  if (postgres === undefined) throw new Error("this trial is for PostgreSQL");
  const client = new pg.Client({ connectionString: postgres.server.url });
  await client.connect();
  try {
    for (let stops = 0; stops < STOPS_MAX; stops += 1) {
      service.child.kill("SIGSTOP");
      // Transactions of the other node end within that time.
      await sleep(OPEN_FOR_MS);
      const { rows } = await client.query(IDLE_TRANSACTIONS, [OPEN_FOR_MS / 2]);
      if (rows.length > 0) return;
      service.child.kill("SIGCONT");
      await sleep(random.between(1, 20));
    }
  } finally {
    await client.end();
  }
  throw new Error("the service was never stopped in the middle of a transaction");
}

async function all(sent: Sent[]): Promise<void> {
  await Promise.all(sent.map(({ ended }) => ended));
}
