import { isObject, objectsIn, parseJson } from "../json.ts";
import { compileCopy } from "../known-fields.ts";
import { compileCheck } from "../validation.ts";
import { UnknownFields } from "../wording.ts";
import { InputItem } from "./request.ts";

/** The items that earlier responses of a caller left for requests that refer to them. */
export interface KeptItems {
  /** Contents by the ids of items and of responses. */
  found: ReadonlyMap<string, string>;
  /** Keeps items of a response. Never rejects. */
  keep(answerId: string, items: readonly { id: string; content: string }[]): Promise<void>;
}

const ID = /^[\w.:-]{1,128}$/;
const copyItem = compileCopy(InputItem);
const checkItem = compileCheck(InputItem);

/** Returns the ids that a body refers to: that of its previous response, and those of items. */
export function referencedIds(body: unknown): string[] {
  if (!isObject(body)) return [];
  const references = objectsIn(body.input).filter(({ type }) => type === "item_reference");
  const ids = [body.previous_response_id, ...references.map(({ id }) => id)];
  return [...new Set(ids.filter((id) => typeof id === "string" && ID.test(id)))] as string[];
}

/** Puts the items that a body refers to in the place of their first references, if they are kept. */
export function withReferredItems(body: unknown, { found }: Pick<KeptItems, "found">): unknown {
  if (!isObject(body) || !Array.isArray(body.input) || found.size === 0) return body;
  // A short body could otherwise stand for any number of copies of a long item.
  const left = new Map(found);
  const input = body.input.map((item: unknown) => {
    if (!isObject(item) || item.type !== "item_reference") return item;
    const id = String(item.id);
    const content = left.get(id);
    left.delete(id);
    return (content === undefined ? undefined : knownItem(parseJson(content))) ?? item;
  });
  return { ...body, input };
}

/** Returns the items of a kept response and of its input; undefined if it is not kept. */
export function keptConversation(responseId: string | undefined, kept: KeptItems | undefined): InputItem[] | undefined {
  const content = responseId === undefined ? undefined : kept?.found.get(responseId);
  const items = content === undefined ? undefined : parseJson(content);
  return Array.isArray(items) ? items.map(knownItem).filter((item) => item !== undefined) : undefined;
}

/** Returns an item with the fields that requests have; undefined for an item of a type that they cannot contain. */
function knownItem(item: unknown): InputItem | undefined {
  const known = copyItem(item, new UnknownFields());
  return checkItem(known) === undefined ? (known as InputItem) : undefined;
}

/** Returns what is kept of a response: its items, and, if `input` is given, all items of the conversation. */
export function itemsToKeep(
  answer: { id: string; output: readonly unknown[] },
  input: readonly InputItem[] | undefined,
) {
  const items = answer.output.flatMap((item) => {
    const { id } = item as { id?: unknown };
    return typeof id === "string" && ID.test(id) ? [{ id, content: JSON.stringify(item) }] : [];
  });
  if (input === undefined) return items;
  return [...items, { id: answer.id, content: JSON.stringify([...input, ...answer.output]) }];
}
