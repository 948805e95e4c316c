import { MESSAGES_MAX } from "../chat/request.ts";
import { detailsOf, isObject, objectsIn, parseJson } from "../json.ts";
import { compileKnown } from "../known-fields.ts";
import { InputItem } from "./request.ts";
import type { ResponseObject } from "./response.ts";

/** The items that earlier responses of a caller left for requests that refer to them. */
export interface KeptItems {
  /** Contents by the ids of items and of responses. */
  found: ReadonlyMap<string, string>;
  /** Keeps items of a response, which `items` makes when it is the caller's turn. Never rejects. */
  keep(answerId: string, items: () => readonly { id: string; content: string }[]): Promise<void>;
}

const ID = /^[\w.:-]{1,128}$/;
/** Returns an item with the fields that requests have; undefined for an item of a type that they cannot contain. */
const knownItem = compileKnown(InputItem);

/** Returns the ids that a body refers to: that of its previous response, and those of items. */
export function referencedIds(body: unknown): string[] {
  if (!isObject(body)) return [];
  // An input that is too long is refused, and could have more ids than a query may have parameters.
  if (Array.isArray(body.input) && body.input.length > MESSAGES_MAX) return [];
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

/** A whole response, and all items of the conversation before it. */
interface KeptResponse {
  input: readonly unknown[];
  response: ResponseObject;
}

/** Returns a kept response by its content; undefined if it is not kept. */
export function keptResponse(content = ""): KeptResponse | undefined {
  const { input, response } = detailsOf(parseJson(content));
  if (!Array.isArray(input) || !Array.isArray(detailsOf(response).output)) return undefined;
  return { input, response: response as ResponseObject };
}

/** Returns the items of a kept response and of its input; undefined if it is not kept. */
export function keptConversation(responseId: string, kept: KeptItems | undefined): InputItem[] | undefined {
  const found = keptResponse(kept?.found.get(responseId));
  if (found === undefined) return undefined;
  return [...found.input, ...found.response.output].map(knownItem).filter((item) => item !== undefined);
}

/** Returns what is kept of a response: its items, and the whole response with all items of the conversation before it. */
export function itemsToKeep(response: ResponseObject, input: readonly InputItem[]) {
  const items = response.output.flatMap(({ id }: { id?: unknown }, index) => {
    const content = JSON.stringify(response.output[index]);
    return typeof id === "string" && ID.test(id) ? [{ id, content }] : [];
  });
  return [...items, { id: response.id, content: JSON.stringify({ input, response } satisfies KeptResponse) }];
}
