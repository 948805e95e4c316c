import { setTimeout as sleep } from "node:timers/promises";
import type { Hold } from "../books.ts";
import { requestOf } from "../checker.ts";
import type { Call, Sent } from "../client.ts";
import { scriptOf } from "../load.ts";
import type { Random } from "../random.ts";
import { type Record, readRecords } from "../records.ts";
import type { Site } from "../site.ts";

const REQUESTS_A_POINT = 5;
/** More than the buffers of a connection between two processes hold, so that the sender must wait. */
const UNREAD_BYTES = 12_000_000;

type Point = "before the hold" | "after the hold" | "mid-stream" | "usage seen" | "settled, not answered";

/**
 * Kills the service while requests are at each of five points. The upstream, the client and a lock on the store bring the
 * requests there.
 */
export async function killAtNamedPoints(site: Site, random: Random, trial: string): Promise<void> {
  const killed = Promise.withResolvers<void>();
  const waiting: Point[] = ["after the hold", "mid-stream", "usage seen", "settled, not answered"];
  const calls = (point: Point, name = trial) => callsAt(point, { site, random, trial: name, killed: killed.promise });
  const sent = site.send(waiting.flatMap((point) => calls(point)));
  await reached(site, trial, waiting);
  const bookedAt = Date.now();
  const unlock = await site.lockStore();
  const early = `${trial}.early`;
  sent.push(...site.send(calls("before the hold", early)));
  await sleep(random.between(100, 400));
  const killedAt = await site.kill();
  killed.resolve();
  await unlock();
  await Promise.all(sent.map(({ ended }: Sent) => ended));
  const strayed = strayedFrom("before the hold", readRecords(site.directory, early), []);
  if (strayed.length > 0) throw new Error(`${strayed.join()} got past a locked store`);
  await site.restart();
  site.addTrial(trial, { killedAt, bookedAt });
  // No transaction waits for a lock forever.
  site.addTrial(early, { killedAt, storeWasUnavailable: true });
  await site.judge();
}

interface Place {
  site: Site;
  random: Random;
  trial: string;
  killed: Promise<void>;
}

function callsAt(point: Point, { site, random, trial, killed }: Place): Call[] {
  return Array.from({ length: REQUESTS_A_POINT }, (_, index) => {
    const id = `${trial}-${point.replaceAll(/\W+/g, "_")}_${index}`;
    const organization = site.organizations[index % site.organizations.length];
    if (organization === undefined) throw new Error("there is no organization");
    const script = scriptOf(id, { words: random.between(10, 30), paceMs: 2 });
    const call = { script, organization, streamed: index % 2 === 0 };
    if (point === "after the hold") script.silence = "start";
    if (point === "mid-stream") return { ...call, streamed: true, script: { ...script, silence: "middle" as const } };
    if (point === "usage seen") return { ...call, streamed: true, script: { ...script, silence: "usage" as const } };
    if (point === "settled, not answered") {
      return { ...call, streamed: false, script: { ...script, paddingBytes: UNREAD_BYTES }, readsLater: killed };
    }
    return call;
  });
}

/** Waits until every request is at its point, and all its delivered tokens are in the books. */
async function reached(site: Site, trial: string, points: Point[]): Promise<void> {
  const until = Date.now() + site.options.patienceMs;
  for (;;) {
    const { holds } = await site.readBooks();
    const records = readRecords(site.directory, trial);
    const strayed = points.flatMap((point) => strayedFrom(point, records, holds));
    if (strayed.length === 0) return;
    if (Date.now() > until) throw new Error(`never came to their points: ${strayed.join()}`);
    await sleep(50);
  }
}

/** Returns the requests that are not at their point. */
function strayedFrom(point: Point, records: Map<string, Record>, holds: Hold[]): string[] {
  const byRequest = new Map(holds.map((hold) => [requestOf(hold), hold]));
  const own = [...records.values()].filter(({ id }) => id.includes(`-${point.replaceAll(/\W+/g, "_")}_`));
  return own.filter((record) => !STANDS_AT[point](record, byRequest.get(record.id))).map(({ id }) => id);
}

const STANDS_AT: { [point in Point]: (record: Record, hold: Hold | undefined) => boolean } = {
  "before the hold": ({ upstream, client }) => upstream.asked === 0 && client.status !== 200,
  "after the hold": ({ upstream }, hold) => upstream.asked === 1 && hold?.state === "open",
  "mid-stream": ({ script, client }, hold) =>
    client.wordsAt.length === Math.ceil(script.words / 2) && knowsAll(client.wordsAt.length, hold),
  "usage seen": ({ script, client, upstream }, hold) =>
    upstream.sentUsage && client.wordsAt.length === script.words && knowsAll(script.words, hold),
  "settled, not answered": ({ client }, hold) => client.end === undefined && hold?.state === "charged",
};

/** Returns true if a renewal has stored every delivered word in the books. */
function knowsAll(words: number, hold: Hold | undefined): boolean {
  return hold?.state === "open" && hold.output_tokens >= words;
}
