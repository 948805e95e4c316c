import type { Random } from "../random.ts";
import type { Report, Reports, Wire } from "./intent.ts";

interface Facts {
  random: Random;
  /** About the tokens of the prompt and of the answer. */
  prompt: number;
  completion: number;
  maxTokens: number;
}

const HUGE = [2 ** 31, 2 ** 53 + 2, 2 ** 63, 1e300] as const;

function plain({ random, prompt, completion, maxTokens }: Facts): Report {
  const written = Math.min(maxTokens, Math.max(1, completion + random.between(0, 30)));
  const all = prompt + random.between(0, 20);
  return {
    prompt: all,
    completion: written,
    cached: random.chance(0.5) ? random.between(0, Math.floor(all / 2)) : 0,
    written: random.chance(0.3) ? random.between(0, Math.floor(all / 4)) : 0,
    reasoning: random.chance(0.5) ? random.between(0, written) : 0,
  };
}

/** Reports that no charge can follow. */
const unusable: Record<string, (facts: Facts) => Report> = {
  zero: () => ({ prompt: 0, completion: 0 }),
  negative: (facts) => ({ ...plain(facts), completion: -facts.random.between(1, 99) }),
  "negative prompt": (facts) => ({ ...plain(facts), prompt: -7, cached: 0, written: 0 }),
  fraction: (facts) => ({ ...plain(facts), completion: 12.5, reasoning: 0 }),
  text: (facts) => ({ ...plain(facts), completion: "12" }),
  "not a number": (facts) => ({ ...plain(facts), completion: facts.random.pick([null, "NaN", true, [], {}]) }),
};

const kinds: Record<string, (facts: Facts) => Omit<Reports, "kind">> = {
  plain: (facts) => ({ last: [plain(facts)] }),
  absent: () => ({ last: [] }),
  ...Object.fromEntries(Object.entries(unusable).map(([kind, make]) => [kind, (facts) => ({ last: [make(facts)] })])),
  huge: (facts) => ({ last: [{ ...plain(facts), completion: facts.random.pick(HUGE), reasoning: 0 }] }),
  "huge prompt": (facts) => ({ last: [{ ...plain(facts), prompt: facts.random.pick(HUGE) }] }),
  "a little too large": (facts) => {
    return { last: [{ ...plain(facts), completion: facts.maxTokens + facts.random.between(1, 50) }] };
  },
  "cached above the prompt": (facts) => ({ last: [{ ...plain(facts), cached: facts.prompt * 3, written: 0 }] }),
  "reasoning above the answer": (facts) => ({ last: [{ ...plain(facts), completion: 20, reasoning: 21 }] }),
  "below the text": (facts) => ({ last: [{ ...plain(facts), completion: 1, reasoning: 0 }] }),
  "a placeholder, then unusable": (facts) => ({
    first: { prompt: facts.prompt, completion: 1 },
    last: [facts.random.pick(Object.values(unusable) as [(facts: Facts) => Report])(facts)],
  }),
  repeated: (facts) => {
    const report = plain(facts);
    return { first: { ...report, completion: 1, reasoning: 0 }, last: [report, report] };
  },
  "in the middle": (facts) => ({ middle: plain({ ...facts, completion: Math.ceil(facts.completion / 2) }), last: [] }),
  growing: (facts) => {
    const report = plain(facts);
    return { first: { ...report, completion: 1, reasoning: 0 }, middle: plain(facts), last: [report] };
  },
  "unknown classes": (facts) => {
    const others = { hologram_tokens: 9_999, server_tool_use: null, deep: { cost: [1], tokens: { smell: -3 } } };
    return { last: [{ ...plain(facts), others }] };
  },
};

/** Returns random reports of an answer; every second one is plain. */
export function randomReports(facts: Facts): Reports {
  const names = Object.keys(kinds) as [string, ...string[]];
  const kind = facts.random.chance(0.5) ? "plain" : facts.random.pick(names);
  return { kind, ...(kinds[kind]?.(facts) ?? { last: [] }) };
}

/** Writes a report on a wire. */
export function written(wire: Wire, { prompt, completion, cached = 0, written = 0, reasoning = 0, others }: Report) {
  if (wire === "embeddings") return { prompt_tokens: prompt, total_tokens: prompt, ...others };
  if (wire === "messages") {
    const isCounted = typeof prompt === "number" && typeof cached === "number" && typeof written === "number";
    return {
      input_tokens: isCounted ? prompt - cached - written : prompt,
      cache_read_input_tokens: cached,
      cache_creation_input_tokens: written,
      output_tokens: completion,
      output_tokens_details: { thinking_tokens: reasoning },
      ...others,
    };
  }
  const [of, to] = wire === "chat" ? ["prompt", "completion"] : ["input", "output"];
  return {
    [`${of}_tokens`]: prompt,
    [`${to}_tokens`]: completion,
    [`${of}_tokens_details`]: { cached_tokens: cached, cache_write_tokens: written },
    [`${to}_tokens_details`]: { reasoning_tokens: reasoning },
    ...others,
  };
}
