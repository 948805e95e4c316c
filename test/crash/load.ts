import type { Call, Sent } from "./client.ts";
import type { Random } from "./random.ts";
import type { Script } from "./script.ts";

/** The sender of requests, and their duration. */
export interface Senders {
  organizations: Call["organization"][];
  options: { streamShare: number };
}

/** Creates the script of an ordinary request. */
export function scriptOf(id: string, fields: Partial<Script> = {}): Script {
  const words = fields.words ?? 10;
  const usage = {
    prompt_tokens: 40 + words,
    completion_tokens: words + 3,
    prompt_tokens_details: { cached_tokens: words % 7 },
  };
  return { id, words, paceMs: 10, usage, silence: null, waitsAfterWords: null, paddingBytes: 0, ...fields };
}

/** Creates typical requests: streamed and unstreamed, short and long, some with clients that disconnect. */
export function mixedCalls(random: Random, trial: string, count: number, senders: Senders): Call[] {
  return Array.from({ length: count }, (_, index) => mixedCall(random, trial, index, senders));
}

function mixedCall(random: Random, trial: string, index: number, { organizations, options }: Senders): Call {
  const long = () => Math.ceil(random.between(20, 90) * options.streamShare);
  const words = random.chance(0.3) ? random.between(1, 10) : long();
  const script = scriptOf(`${trial}-${index}`, { words, paceMs: random.between(10, 35) });
  if (random.chance(0.15)) script.usage = null;
  const organization = organizations[index % organizations.length];
  if (organization === undefined) throw new Error("there is no organization");
  const leaves = random.chance(0.08) ? { leavesAfterWords: random.between(1, words) } : {};
  const key = random.chance(0.3) ? { idempotencyKey: script.id } : {};
  return { script, streamed: random.chance(0.7), organization, ...leaves, ...key };
}

/** Creates streams that pause between their first and their last word until their trial is released. */
export function waitingStreams(random: Random, trial: string, count: number, senders: Senders): Call[] {
  return mixedCalls(random, trial, count, senders).map(({ script, organization }) => {
    const words = random.between(10, 30);
    const fields = { words, paceMs: random.between(10, 35), waitsAfterWords: random.between(1, words - 1) };
    return { script: scriptOf(script.id, fields), streamed: true, organization };
  });
}

/** Creates a stream with little text that costs nearly the amount held for it. */
export function dearStream(id: string, organization: Call["organization"], fields: Partial<Script> = {}): Call {
  const usage = { prompt_tokens: 100, completion_tokens: 4000, prompt_tokens_details: { cached_tokens: 0 } };
  return { script: scriptOf(id, { words: 10, usage, waitsAfterWords: 5, ...fields }), streamed: true, organization };
}

/**
 * Keeps this many requests running, replacing each that ends. Returns a function that stops this and resolves when all
 * requests have ended.
 */
export function keepCalling(
  site: Senders & { send(calls: Call[]): Sent[] },
  random: Random,
  trial: string,
  count: number,
): () => Promise<void> {
  let isOver = false;
  let sent = 0;
  const callOn = async () => {
    while (!isOver) {
      const [one] = site.send([mixedCall(random, trial, sent, site)]);
      sent += 1;
      await one?.ended;
    }
  };
  const calling = Promise.all(Array.from({ length: count }, callOn));
  return async () => {
    isOver = true;
    await calling;
  };
}
