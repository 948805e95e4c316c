import type { Received } from "./client.ts";
import type { Emission, Rules } from "./judge.ts";
import { type Act, countWords, promptOf, type Script } from "./script.ts";
import { SANDBOX_PRICES } from "./tollgate.ts";
import type { ScriptedUpstream } from "./upstream.ts";

/** The facts about an attempt that its source knows. */
export interface Observation {
  /** False if the gateway did not call its upstream. */
  isReached: boolean;
  upstream: Emission;
}

/** The models of the gateway that follow scripts. */
export interface AnswerSource {
  rules: Rules;
  /** Returns the model and the prompt that follow a script, or the reason why there are none. */
  prepare(id: string, script: Script): { model: string; prompt: string } | { refusal: string };
  /** Returns the number of calls for a script so far; undefined if they are not seen. */
  callCount(id: string): number | undefined;
  /** Describes the calls for a script since there were `before` of them. */
  observe(id: string, script: Script, before: number, received: Received): Observation;
}

/** Returns the source that is the benchmark's own upstream, behind a model of the gateway. */
export function upstreamSource(upstream: ScriptedUpstream, model: string, rules: Rules): AnswerSource {
  return {
    rules,
    prepare(id, script) {
      upstream.register(id, script);
      return { model, prompt: promptOf(id) };
    },
    callCount: (id) => upstream.callsOf(id).length,
    observe(id, _script, before) {
      // A gateway may call the upstream several times for one attempt, and delivers one of these answers.
      const calls = upstream.callsOf(id).slice(before);
      const last = calls.at(-1);
      const isTrue = last?.act.kind === "answer" && last.act.usage === undefined;
      const emission = {
        get emittedTokens() {
          return Math.max(0, ...calls.map(({ emittedTokens }) => emittedTokens));
        },
        get reportedPromptTokens() {
          return isTrue && last.isComplete ? last.promptTokens : undefined;
        },
      };
      return { isReached: calls.length > 0, upstream: emission };
    },
  };
}

/** Tokens after which a slow answer of the sandbox pauses. */
const PAUSE_AFTER = 5;

/** Returns the source that is Tollgate's model `sandbox/fault`, which does what its message says. */
export function sandboxSource(): AnswerSource {
  return {
    // The sandbox's words are not single tokens: where Tollgate counts, a word is one to three.
    rules: { prices: SANDBOX_PRICES, counting: { leastPercent: 100, mostPercent: 300 } },
    prepare(_id, script) {
      const phrase = phraseOf(script);
      return typeof phrase === "string" ? { model: "sandbox/fault", prompt: phrase } : phrase;
    },
    callCount: () => undefined,
    observe(_id, { tokens, acts: [act] }, _before, received) {
      const isTrue = act.kind === "answer" && act.usage === undefined && received.isComplete;
      const emission = {
        emittedTokens: act.kind === "break" ? act.afterTokens : tokens,
        reportedPromptTokens: isTrue ? countWords(String(phraseOf({ tokens, acts: [act] }))) : undefined,
      };
      return { isReached: true, upstream: emission };
    },
  };
}

function phraseOf({ tokens, acts: [act, ...more] }: Script): string | { refusal: string } {
  if (more.length > 0) return { refusal: "a sandbox model cannot fail once and then answer" };
  const words = `${tokens} tokens`;
  const fault = faultOf(act, tokens);
  return fault === undefined ? { refusal: "no sandbox model does this" } : [words, ...fault].join(", ");
}

function faultOf(act: Act, tokens: number): string[] | undefined {
  switch (act.kind) {
    case "status":
      return [`status ${act.status}`];
    case "hang up":
      return ["unavailable"];
    case "page":
      return undefined;
    case "break": {
      const words = { reset: "reset", error: "error event", end: undefined }[act.by];
      return words === undefined ? undefined : [`${words} after ${act.afterTokens} tokens`];
    }
    case "answer": {
      if (act.usage !== undefined && act.usage !== "absent") return undefined;
      const pauseMs = (act.pauseMs ?? 0) * tokens;
      const pause = pauseMs === 0 ? [] : [`silence after ${PAUSE_AFTER} tokens ${pauseMs}ms`];
      return [...pause, ...(act.usage === "absent" ? ["no usage"] : [])];
    }
  }
}
