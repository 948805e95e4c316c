import { firstImageAddress, isPublicHost } from "../api/chat/image-address.ts";
import type { Scrub } from "./openai/errors.ts";
import type { UpstreamRequest } from "./provider.ts";

/** Tests whether an upstream is in a private network. Takes null for the base URL of a provider that has its own. */
export function isPrivateUpstream(baseUrl: string | null): boolean {
  const host = baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
  return host !== undefined && !isPublicHost(host);
}

/**
 * Returns the scrub for the error messages of an upstream. Where an image was sent by its address, the messages are hidden:
 * they may say what the upstream found there.
 */
export function scrubFor({ messages }: Pick<UpstreamRequest, "messages">, scrub: Scrub): Scrub {
  if (firstImageAddress(messages) === undefined) return scrub;
  const reason =
    "The provider refused a request with an image address, and its reason is not shown. Send the image as data:image/…;base64,… to see the reason.";
  return Object.assign((text: string) => scrub(text), { reason });
}
