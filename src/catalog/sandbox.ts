import type { PriceClass } from "../api/price-classes.ts";
import type { Task } from "../api/tasks.ts";
import { parsePrice } from "../credits/price.ts";
import { compose } from "./compose.ts";
import { readFacts } from "./facts.ts";
import { CALLS_MOST_DEFAULT, type CatalogModel } from "./model.ts";

/** The provider of the built-in models. It exists unless the configuration disables the sandbox. */
export const SANDBOX_PROVIDER = { id: "sandbox", kind: "sandbox", baseUrl: null } as const;

const FACTS = {
  released: "2026-11-21",
  contextWindow: 32_768,
  maxOutputTokens: 4_096,
  can: ["tools", "structured_output"],
  imageTokensMax: 0,
} as const;

const MODELS = {
  echo: ["Sandbox Echo", "Answers with the last user message, word by word. For trying things out"],
  story: ["Sandbox Story", "Writes the same story until max_tokens. For trying things out"],
  fault: ["Sandbox Fault", "Fails the way its message says, such as a status, a delay or a reset. For testing clients"],
  embed: ["Sandbox Embed", "Makes the same vector of the same text. For trying things out"],
  speech: ["Sandbox Speech", "Plays a note for each character. For trying things out"],
  transcribe: ["Sandbox Transcribe", "States how long a WAV file is. For trying things out"],
  image: ["Sandbox Image", "Answers any prompt with the same picture. For trying things out"],
} as const;

const OTHERS: { [Model in keyof typeof MODELS]?: { task: Task; calls?: { [Name in PriceClass]?: string } } } = {
  embed: { task: "embedding" },
  speech: { task: "speech", calls: { characters: "15" } },
  transcribe: { task: "transcription", calls: { seconds: "100" } },
  image: { task: "image", calls: { images: "40000" } },
};

/** Returns the built-in models, which are deterministic and work offline. They have prices, so that charges can be tried out. */
export function sandboxModels(): CatalogModel[] {
  const priceOf = (text = "0") => parsePrice(text) ?? 0n;
  return Object.entries(MODELS).map(([model, [name, purpose]]) => {
    const description = `${purpose}: no AI model is called.`;
    const { task, calls } = OTHERS[model as keyof typeof MODELS] ?? {};
    const input = priceOf(calls === undefined ? "1" : "0");
    const output = priceOf(task === undefined ? "2" : "0");
    const ofCalls = Object.entries(calls ?? {}).map(([call, text]) => [call, priceOf(text)]);
    const ofTokens = { input, cachedInput: input, cacheWrite: input, output, reasoning: output };
    const route = { providerId: SANDBOX_PROVIDER.id, model, ...(calls && { callsMost: CALLS_MOST_DEFAULT }) };
    const embedding = task === "embedding" && { embedding: { dimensions: 256, choices: "shorter" as const } };
    return compose({
      id: `${SANDBOX_PROVIDER.id}/${model}`,
      routes: [{ ...route, prices: { ...ofTokens, ...Object.fromEntries(ofCalls) } }],
      facts: readFacts({ ...FACTS, name, ...embedding }, "Tollgate", "tollgate"),
      stated: { category: "sandbox", description, playground: true },
      task,
      sentence: description,
    });
  });
}

/** Returns the built-in model of a name at its provider. */
export function sandboxModel(name: string): CatalogModel | undefined {
  return sandboxModels().find(({ routes }) => routes[0]?.model === name);
}
