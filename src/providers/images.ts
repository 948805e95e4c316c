import { isImageData, isPublicHost } from "../contract/image-address.ts";
import type { RequestMessage } from "../contract/request.ts";
import type { Scrub } from "./openai/errors.ts";
import { UpstreamError, type UpstreamRequest } from "./provider.ts";

/**
 * The refusal of an image that is sent by its address where the upstream is in a private network: it would fetch the
 * address from there. Undefined where the request holds none, and where the upstream is public. Takes null for the
 * base URL of a provider that has its own.
 */
export function refuseImageAddresses(
  { messages }: Pick<UpstreamRequest, "messages">,
  baseUrl: string | null,
): UpstreamError | undefined {
  const host = baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
  if (host === undefined || isPublicHost(host)) return undefined;
  const place = firstImageAddress(messages);
  if (place === undefined) return undefined;
  const publicReason = `Invalid '${place}': this model takes images by their bytes alone, as data:image/…;base64,….`;
  return new UpstreamError("unsupported", "The upstream is private and must fetch no addresses", {
    publicReason,
    param: place,
  });
}

/**
 * The scrub for what the upstream says of a request. Where an image was sent by its address, its reasons are hidden: they
 * may tell what it found there.
 */
export function scrubFor({ messages }: Pick<UpstreamRequest, "messages">, scrub: Scrub): Scrub {
  if (firstImageAddress(messages) === undefined) return scrub;
  const reason =
    "The provider refused a request with an image address, and its reason is not shown. Send the image as data:image/…;base64,… to see the reason.";
  return Object.assign((text: string) => scrub(text), { reason });
}

function firstImageAddress(messages: readonly RequestMessage[]): string | undefined {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    const part = content.findIndex(({ type, ...rest }) => {
      return type === "image_url" && "image_url" in rest && !isImageData(rest.image_url.url);
    });
    if (part >= 0) return `messages[${index}].content[${part}].image_url.url`;
  }
  return undefined;
}
