import type { Capability } from "../../api/model.ts";
import type { Dialect } from "../dialect.ts";

/** What cannot be had of a provider in the way it is spoken to. */
export interface Limits {
  /** What its models can, but not through this. */
  lacks: readonly Capability[];
  /**
   * Fields of a request that are refused, or taken and done nothing with; `response_format.json_object` and the like for one
   * value of a field, `image_url.address` for images by their address.
   */
  refuses: readonly string[];
}

/** A provider that is known by its address or its kind, so that its models' facts and prices are known too. */
export interface KnownProvider extends Limits {
  /** Also the name under which `facts/offers.json` lists its models. */
  id: string;
  /** As people write it. */
  name: string;
  kind: string;
  /** The environment variable that its users keep their key in; null: it takes more than a key, and has to be configured. */
  keyVariable: string | null;
  /** Null where each customer has another. */
  baseUrl: string | null;
  /** Its name in the price data. */
  pricesId: string;
  /** The page of its documentation that all this was taken from. */
  documentation: string;
  /** What there is to know of it beside what it refuses, a sentence each, for the guide. */
  remarks: readonly string[];
  /** How it differs from most that are compatible with OpenAI's API. */
  dialect?: Partial<Dialect>;
  /** True where it runs tools of its own, such as a search, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** True where it counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
  /** What holds where a provider with a wire of its own is spoken to by its OpenAI-compatible API instead. */
  compatible?: Limits;
}

type Stated = Pick<KnownProvider, "id" | "name" | "documentation">;

/** A provider that is compatible with OpenAI's API. */
export function openAiCompatible(
  stated: Stated & { keyVariable: string; baseUrl: string } & Partial<KnownProvider>,
): KnownProvider {
  return { kind: "openai-compatible", pricesId: stated.id, lacks: [], refuses: [], remarks: [], ...stated };
}

/** A provider with a wire of its own, which is a kind of its own. */
export function ownWire(stated: Stated & Partial<KnownProvider>): KnownProvider {
  const { id } = stated;
  return { kind: id, keyVariable: null, baseUrl: null, pricesId: id, lacks: [], refuses: [], remarks: [], ...stated };
}
