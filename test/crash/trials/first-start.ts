import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startTollgate } from "../../support/command-line.ts";
import { startProcess } from "../../support/service.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";
import { createDatabase } from "../stores.ts";

const KILLS = 3;
/** A start takes about a second; the tables are created in the middle of it. */
const KILL_WITHIN_MS = 1_500;

/** Kills two services with SIGKILL while they start together on an empty store: the next start must succeed. */
export async function killFirstStarts(site: Site, random: Random, trial: string): Promise<void> {
  const dataDir = join(site.directory, trial);
  await mkdir(dataDir);
  const databaseUrl = await createDatabase(site.postgres?.server.url, trial);
  const environment: Record<string, string> = databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl };
  const words = ["serve", "--port", "0", "--data-dir", dataDir];
  for (let kills = 0; kills < KILLS; kills += 1) {
    const starts = [startTollgate(words, dataDir, environment), startTollgate(words, dataDir, environment)];
    await sleep(random.between(100, KILL_WITHIN_MS));
    for (const { child } of starts) child.kill("SIGKILL");
    await Promise.all(starts.map(({ ended }) => ended));
  }
  const service = await startProcess({ dataDir, databaseUrl });
  try {
    const verified = await service.tollgate("ledger", "verify");
    if (verified.ok !== true) throw new Error(`the books do not balance: ${JSON.stringify(verified)}`);
    const listed = await service.tollgate<{ kind: string }[]>("org", "list");
    const made = listed.filter(({ kind }) => kind === "standard");
    if (made.length !== 1) throw new Error(`several first starts made ${JSON.stringify(made)}`);
  } finally {
    await service.end("SIGKILL");
  }
}
