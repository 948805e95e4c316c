import type { ImageRequest } from "../../api/images/request.ts";
import { dearestList, type Route } from "../../catalog/model.ts";
import type { ProviderAnswer, UpstreamChunk } from "../../providers/provider.ts";
import type { GatewayCall } from "../gateway.ts";
import type { Plan } from "../plan.ts";
import { planTask, type TaskPlanner } from "./task.ts";

/** Plans a request of images. Throws model_not_found, model_not_allowed or unsupported_value. */
export function planImages(gateway: TaskPlanner, call: GatewayCall<"image">): Plan {
  const { request } = call;
  const { prompt, n = 1, safety_identifier, user } = request;
  const plan = planTask(gateway, call, "image", {
    texts: [prompt],
    calls: { images: n },
    user: safety_identifier ?? user,
  });
  const { model, estimate, output } = plan;
  const [first, ...others] = plan.routes;
  const tokens = n * model.maxOutputTokens;
  return {
    ...plan,
    // The maximum of the model is that of one image.
    model: { ...model, maxOutputTokens: tokens, contextWindow: Math.max(model.contextWindow, 2 * tokens) },
    routes: [routeFor(first, request), ...others.map((route) => routeFor(route, request))],
    output: { ...output, tokens },
    estimate: { ...estimate, most: estimate.most + ADDED_TOKENS_MOST },
    send: async (provider, route, maxTokens) => {
      const answer = await plan.send(provider, route, maxTokens);
      return { ...answer, chunks: priced(answer.chunks, route, request) };
    },
  };
}

/** Tokens that an upstream may add to a prompt: OpenAI's example reports 50 for a prompt of 21 characters. */
const ADDED_TOKENS_MOST = 256;

type Kind = { [Part in "quality" | "size"]?: unknown };

/**
 * Returns a route at the prices of the image that is asked for. Where the request leaves its size or quality to the upstream,
 * all possible prices stay, and the highest applies unless the answer states what was made. The route's own price is possible
 * where no entry surely names the image.
 */
function routeFor(route: Route, request: ImageRequest): Route {
  const { serviceTiers = {}, ...others } = route;
  const possible = mostSpecific(Object.entries(serviceTiers).filter(([name]) => isOf(name, request, isOpen)));
  const sure = possible.findIndex(([name]) => isOf(name, request));
  // An entry that surely applies excludes those that are less exact.
  const lists = sure === -1 ? possible : possible.slice(0, sure + 1);
  return {
    ...others,
    ...dearestList([...(sure === -1 ? [route] : []), ...lists.map(([, list]) => list)]),
    ...(sure !== 0 && lists.length > 0 && { serviceTiers: Object.fromEntries(lists) }),
  };
}

/** Tells whether a request leaves a part to the upstream. */
const isOpen = (stated: unknown) => stated === undefined || stated === "auto";

/** Adds to the fields of an answer which of the route's prices they choose, with what the request states where they are silent. */
async function* priced(
  chunks: ProviderAnswer["chunks"],
  { serviceTiers = {} }: Route,
  request: ImageRequest,
): ProviderAnswer["chunks"] {
  const [askedQuality, askedSize] = [request.quality, request.size].map((part) => (isOpen(part) ? undefined : part));
  for await (const batch of chunks) {
    yield batch.map((chunk: UpstreamChunk) => {
      const { quality, size } = chunk.whole ?? {};
      if (quality === undefined && size === undefined) return chunk;
      const made = { quality: quality ?? askedQuality, size: size ?? askedSize };
      const [tier] = mostSpecific(Object.entries(serviceTiers).filter(([name]) => isOf(name, made)));
      return tier === undefined ? chunk : { ...chunk, service_tier: tier[0] };
    });
  }
}

/** Tells whether a price, named by a size, a quality or both such as `hd/1024x1024`, is that of an image. */
function isOf(name: string, { quality, size }: Kind, isFree: (stated: unknown) => boolean = () => false): boolean {
  return name.split("/").every((part) => {
    const stated = /^\d/.test(part) ? size : quality;
    return stated === part || isFree(stated);
  });
}

function mostSpecific<Named>(lists: readonly [string, Named][]): [string, Named][] {
  return lists.toSorted(([a], [b]) => b.split("/").length - a.split("/").length);
}
