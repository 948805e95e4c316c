import { setTimeout as sleep } from "node:timers/promises";
import { startTollgate } from "../../support/command-line.ts";
import { mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 20;
const GRANTS = 3;
/** Commands take about a second to start. */
const KILL_WITHIN_MS = 2_000;

/** Kills commands that grant credits with SIGKILL, and repeats each: every reference must grant once. */
export async function killCommands(site: Site, random: Random, trial: string): Promise<void> {
  const sent = site.send(mixedCalls(random, trial, REQUESTS, site));
  const references = Array.from({ length: GRANTS }, (_, index) => `${trial}-${index}`);
  await Promise.all(
    references.map(async (reference) => {
      const [organization] = site.organizations;
      const words = ["credits", "grant", "--org", organization?.id ?? "", "7.25", "--reference", reference];
      const command = startTollgate([...words, ...site.commandWords], site.directory);
      await sleep(random.between(0, KILL_WITHIN_MS));
      command.child.kill("SIGKILL");
      await command.ended;
      await site.service.tollgate(...words);
    }),
  );
  await Promise.all(sent.map(({ ended }) => ended));
  const { grants } = await site.readBooks();
  const booked = grants.filter(
    ({ reference, amount }) => references.includes(reference ?? "") && amount === 7_250_000n,
  );
  if (booked.length !== GRANTS) throw new Error(`${GRANTS} references granted ${booked.length} times`);
  site.addTrial(trial, {});
  await site.judge();
}
