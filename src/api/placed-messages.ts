import type { ContentPart, RequestMessage } from "./chat/request.ts";

const MESSAGE_PARAM = /^messages\[(\d+)\](?:\.content\[(\d+)\])?(.*)$/;

/** Messages of the internal form, with the wire's paths of them and of their parts for the errors that name them. */
export class PlacedMessages {
  readonly messages: RequestMessage[] = [];
  readonly #paths = new Map<object, string>();

  add(message: RequestMessage, path: string): void {
    this.messages.push(this.note(message, path));
  }

  /** Notes the path from which a message or a part was made. Returns the message or the part. */
  note<Made extends RequestMessage | ContentPart>(made: Made, path: string): Made {
    this.#paths.set(made, path);
    return made;
  }

  /** Returns the wire's path of a message or a part by its path in the internal form, and the rest of that path. */
  find(param: string): { path: string; rest: string; isPart: boolean } | undefined {
    const [, index, partIndex, rest = ""] = MESSAGE_PARAM.exec(param) ?? [];
    const message = this.messages[Number(index)];
    if (message === undefined) return undefined;
    const part = Array.isArray(message.content) ? message.content[Number(partIndex)] : undefined;
    const ofPart = part && this.#paths.get(part);
    const path = ofPart ?? this.#paths.get(message);
    return path === undefined ? undefined : { path, rest, isPart: ofPart !== undefined };
  }
}
