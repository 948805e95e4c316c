import { COUNTS, playCases } from "../../support/counts.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

/** Plays random histories of operations against the store and against a plain model of the books. */
export async function playHistories({ options }: Site, random: Random): Promise<void> {
  const name = { sqlite: "on SQLite", postgres: "on PostgreSQL" }[options.store];
  const seed = random.between(1, 1_000_000_000);
  await playCases("histories", { count: COUNTS.histories.soak, seed, words: ["--testNamePattern", `${name}$`] });
}
