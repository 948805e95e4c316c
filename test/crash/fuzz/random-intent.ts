import type { Random } from "../random.ts";
import type { Account, Answer, Ending, Inbound, Intent, Leaving, Repetition, Reports, Wire } from "./intent.ts";
import { randomPiece, Writer } from "./pieces.ts";
import { randomReports } from "./reports.ts";

/** The wires that an upstream can have behind each endpoint. */
const ROUTES: Record<Inbound, [Wire, ...Wire[]]> = {
  chat: ["chat", "chat", "chat", "chat", "messages", "responses"],
  responses: ["chat", "chat", "responses", "responses", "messages"],
  messages: ["chat", "chat", "messages", "messages", "responses"],
  embeddings: ["embeddings"],
  count_tokens: ["chat"],
};
/** Answers of a model that reasons, at most: with fewer than 100, an estimate follows from the time alone. */
const ANSWERS_OF_A_THINKER = 80;
export const THINKERS = 10;

const ENDINGS: [Ending, ...Ending[]] = [
  "cut",
  "unfinished",
  "error",
  "garbage",
  "cut at the end",
  "refusal",
  "failure",
  "html",
  "reset",
];
const FEW_TOKENS = 40;

interface Facts {
  /** About the tokens of the prompt. */
  prompt: number;
  maxTokens: number;
  /** True for an answer without pieces that its wire does not know. */
  isKnown: boolean;
}

/** Makes random requests, with the answer that their upstream will give. */
export class Intents {
  readonly #made: Map<string, Intent>;
  readonly #random: Random;
  readonly #accounts: readonly Account[];
  readonly #trial: string;
  #thinking = 0;

  /** `made` receives each request by its id. */
  constructor(
    random: Random,
    { trial, accounts, made }: { trial: string; accounts: readonly Account[]; made: Map<string, Intent> },
  ) {
    this.#random = random;
    this.#trial = trial.replaceAll(/\W/g, "");
    this.#accounts = accounts;
    this.#made = made;
  }

  next(): Intent {
    const random = this.#random;
    const id = `r${this.#trial}x${this.#made.size}`;
    const share = random.between(1, 100);
    const inbound: Inbound =
      share <= 40
        ? "chat"
        : share <= 65
          ? "messages"
          : share <= 88
            ? "responses"
            : share <= 95
              ? "embeddings"
              : "count_tokens";
    const wire = random.pick(ROUTES[inbound]);
    const isCompletion = inbound !== "embeddings" && inbound !== "count_tokens";
    const thinks = isCompletion && random.chance(0.15) && this.#thinking < THINKERS * ANSWERS_OF_A_THINKER;
    if (thinks) this.#thinking += 1;
    const isTranslated = wire !== "chat" && wire !== inbound && isCompletion;
    const plain = isTranslated ? translatedOf(wire) : wire;
    const model = thinks ? thinkerOf(wire, Math.floor(this.#thinking / (ANSWERS_OF_A_THINKER + 1))) : plain;
    const words = random.chance(0.02) ? 3_000 : random.between(1, 60);
    const prompt = `{{${id}}} ${"please ".repeat(words)}`;
    const maxTokens = random.chance(0.1) ? FEW_TOKENS : random.between(200, 4_000);
    const isStreamed = isCompletion && random.chance(0.65);
    // A package translates such an answer, and refuses it for most pieces that it does not know.
    const isKnown = isTranslated && random.chance(0.85);
    const answer = this.#answer(id, wire, { prompt: words + 20, maxTokens, isKnown });
    const intent: Intent = {
      ...{ id, inbound, model, reasons: thinks, prompt, maxTokens, isStreamed, answer, calls: [], asks: [] },
      account: this.#account(),
      tokenIndex: random.between(0, 1),
      maxCost: random.chance(0.05) ? random.pick(["0.000001", "0.004", "0.05"]) : null,
      leaving: this.#leaving(answer),
      ...this.#keyed(id, inbound),
    };
    this.#made.set(id, intent);
    return intent;
  }

  #account(): Account {
    const { length } = this.#accounts;
    const account = this.#accounts[this.#random.between(0, length - 1)];
    if (account === undefined) throw new Error("there is no account");
    return account;
  }

  #answer(id: string, wire: Wire, { prompt, maxTokens, isKnown }: Facts): Answer {
    const random = this.#random;
    const writer = new Writer(random, id);
    const count = random.chance(0.05) ? 0 : random.between(1, 12);
    const pieces =
      wire === "embeddings"
        ? []
        : Array.from({ length: count }, (_, index) => randomPiece(wire, writer, { index, isKnown }));
    const completion = pieces.flatMap(({ leaves }) => leaves).reduce((sum, { text }) => sum + text.length / 4, 0);
    const facts = { random, prompt, completion: wire === "embeddings" ? 0 : Math.ceil(completion), maxTokens };
    return {
      ...{ wire, pieces, reports: isKnown ? withFirst(randomReports(facts), prompt) : randomReports(facts) },
      ending: random.chance(0.78) ? "whole" : random.pick(ENDINGS),
      endsAfter: random.between(0, pieces.length),
      finish: random.pick(["stop", "stop", "length", "tools"]),
      pauseMs: random.chance(0.5) ? 0 : random.between(1, 25),
      isSplit: random.chance(0.2),
      failsFirst: random.chance(0.04) ? 1 : 0,
    };
  }

  #leaving({ pieces }: Answer): Leaving {
    const random = this.#random;
    if (!random.chance(0.2)) return null;
    return random.chance(0.4)
      ? { afterMs: random.between(0, 250) }
      : { afterMarks: random.between(1, 1 + pieces.length) };
  }

  #keyed(id: string, inbound: Inbound): Pick<Intent, "key" | "repetitions"> {
    const random = this.#random;
    if (inbound === "count_tokens" || !random.chance(0.2)) return { key: null, repetitions: [] };
    const all: [Repetition, ...Repetition[]] = ["same", "same", "same", "other body", "other endpoint", "sibling"];
    const some = inbound === "embeddings" ? (["same", "other body", "sibling"] as [Repetition, ...Repetition[]]) : all;
    const repetitions = Array.from({ length: random.between(0, 2) }, () => {
      return { repetition: random.pick(some), isAtOnce: random.chance(0.3) };
    });
    return { key: `key-${id}`, repetitions };
  }
}

/** Adds the report with which each stream of the Messages wire begins, and without which a package reads none. */
function withFirst(reports: Reports, prompt: number): Reports {
  return { first: { prompt, completion: 1 }, ...reports };
}

/** Name of a model whose answers are translated: their failures close no model of answers that pass unchanged. */
export function translatedOf(wire: Wire): string {
  return `${wire}-translated`;
}

/** Name of a model that reasons. */
export function thinkerOf(wire: Wire, index: number): string {
  return `${wire}-thinker-${index}`;
}
