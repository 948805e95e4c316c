import { isObject, type JsonObject, textOf } from "../openai/json.ts";

/** A piece of reasoning that a provider wants back as it was, with what proves it. */
export interface SignedReasoning {
  text: string;
  fields: Record<string, string>;
}

/**
 * Builds the `extra_content` of a tool call; undefined if there is nothing to carry. `google.thought_signature` has the
 * form of Google's OpenAI-compatible endpoint ("Thought signatures" in the Gemini API guide). `<provider>.reasoning` is
 * this service's own field, because OpenAI's wire has none for signed reasoning.
 */
export function writeExtraContent(
  key: string,
  signature: string | undefined,
  reasoning: readonly SignedReasoning[],
): JsonObject | undefined {
  const signed = reasoning.map(({ text, fields }) => ({ text, ...fields }));
  if (signature === undefined && signed.length === 0) return undefined;
  return {
    ...(signature !== undefined && { google: { thought_signature: signature } }),
    ...(signed.length > 0 && { [key]: { reasoning: signed } }),
  };
}

/** Reads what a caller sent back: only the named fields, and only where they are text. */
export function readExtraContent(
  extra: unknown,
  key: string,
  names: readonly string[],
): { signature: string | undefined; reasoning: SignedReasoning[] } {
  if (!isObject(extra)) return { signature: undefined, reasoning: [] };
  const signature = isObject(extra.google) ? textOf(extra.google.thought_signature) : undefined;
  const own = extra[key];
  const signed = isObject(own) && Array.isArray(own.reasoning) ? own.reasoning.filter(isObject) : [];
  const reasoning = signed.flatMap((piece): SignedReasoning[] => {
    const fields = pickTexts(piece, names);
    return Object.keys(fields).length === 0 ? [] : [{ text: textOf(piece.text) ?? "", fields }];
  });
  return { signature, reasoning };
}

/** Those of the named fields that are text. */
export function pickTexts(record: unknown, names: readonly string[]): Record<string, string> {
  if (!isObject(record)) return {};
  return Object.fromEntries(
    names.flatMap((name) => (typeof record[name] === "string" ? [[name, record[name]]] : [])),
  ) as Record<string, string>;
}
