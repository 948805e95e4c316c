import type { Call } from "./client.ts";
import type { Random } from "./random.ts";
import type { Script } from "./script.ts";

/** A request's script with nothing odd about it. */
export function scriptOf(id: string, fields: Partial<Script> = {}): Script {
  const words = fields.words ?? 10;
  const usage = {
    prompt_tokens: 40 + words,
    completion_tokens: words + 3,
    prompt_tokens_details: { cached_tokens: words % 7 },
  };
  return { id, words, paceMs: 10, usage, waitsFor: null, silence: null, paddingBytes: 0, ...fields };
}

/** Requests as they come to a service: streamed and not, short and long, some whose clients leave. */
export function mixedCalls(
  random: Random,
  trial: string,
  count: number,
  organizations: Call["organization"][],
): Call[] {
  return Array.from({ length: count }, (_, index) => {
    const words = random.chance(0.3) ? random.between(1, 10) : random.between(20, 90);
    const script = scriptOf(`${trial}-${index}`, { words, paceMs: random.between(10, 35) });
    if (random.chance(0.15)) script.usage = null;
    const organization = organizations[index % organizations.length];
    if (organization === undefined) throw new Error("there is no organization");
    const leaves = random.chance(0.08) ? { leavesAfterWords: random.between(1, words) } : {};
    const key = random.chance(0.3) ? { idempotencyKey: script.id } : {};
    return { script, streamed: random.chance(0.7), organization, ...leaves, ...key };
  });
}

/** Streams that run for about so long. */
export function longStreams(
  random: Random,
  trial: string,
  count: number,
  { lastingMs, organizations }: { lastingMs: number; organizations: Call["organization"][] },
): Call[] {
  return mixedCalls(random, trial, count, organizations).map(({ script, organization }) => {
    const paceMs = random.between(30, 60);
    const words = Math.ceil(random.between(lastingMs / 2, lastingMs) / paceMs);
    return { script: scriptOf(script.id, { words, paceMs }), streamed: true, organization };
  });
}
