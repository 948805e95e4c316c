import type { EmbeddingModelV4 } from "@ai-sdk/provider";
import { type ProviderEmbeddingCall, type ProviderEmbeddings, UpstreamError } from "../provider.ts";
import type { EmbeddingWire } from "./wire.ts";

/** Inputs of one call of an upstream, where the package states no smaller number: an answer is bounded. */
const INPUTS_A_CALL_MAX = 64;
const CALLS_AT_ONCE = 4;

/**
 * Creates embeddings with a package's model, in as many calls of the upstream as it needs for the inputs. The tokens are
 * unknown if one call does not report them. Rejects with the first failure; aborting `signal` ends the calls that run.
 */
export async function embedInCalls(
  model: EmbeddingModelV4,
  { options, inputsACall }: EmbeddingWire,
  { inputs, dimensions, model: name, user, signal }: ProviderEmbeddingCall,
): Promise<ProviderEmbeddings> {
  // Token ids are sent only to a provider that takes them.
  const texts = inputs as readonly string[];
  const most = inputsACall?.(name) ?? (await model.maxEmbeddingsPerCall) ?? INPUTS_A_CALL_MAX;
  const size = Math.min(most, INPUTS_A_CALL_MAX);
  const vectors: number[][] = [];
  let tokens: number | undefined = 0;
  let next = 0;
  const work = async () => {
    while (next < texts.length) {
      const start = next;
      next += size;
      const values = texts.slice(start, start + size);
      const providerOptions = options?.(dimensions, name) ?? {};
      const { embeddings, usage } = await model.doEmbed({ values, dimensions, providerOptions, abortSignal: signal });
      if (embeddings.length !== values.length) {
        throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
      }
      for (const [index, vector] of embeddings.entries()) vectors[start + index] = vector;
      tokens = usage === undefined || tokens === undefined ? undefined : tokens + usage.tokens;
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work));
  return {
    vectors,
    usage: tokens === undefined ? undefined : { prompt_tokens: tokens, completion_tokens: 0 },
    ignored: user === undefined ? [] : ["user"],
  };
}
