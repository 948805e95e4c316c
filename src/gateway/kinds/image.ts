import type { ImageRequest } from "../../api/images/request.ts";
import { dearestList, type Route } from "../../catalog/model.ts";
import { estimateInputs } from "../../credits/estimate.ts";
import type { ProviderAnswer, UpstreamChunk } from "../../providers/provider.ts";
import type { Gateway, GatewayCall } from "../gateway.ts";
import { labelsOf, modelForTask, type Plan } from "../plan.ts";

/** Plans a request of images. Throws model_not_found, model_not_allowed or unsupported_value. */
export function planImages(
  { catalog, providers, longTasks }: Pick<Gateway, "catalog" | "providers" | "longTasks">,
  call: GatewayCall<"image">,
): Plan {
  const { principal, request, output, requestId, traceparent, signal } = call;
  const { prompt, n = 1, safety_identifier, user } = request;
  const { model, routes: found } = modelForTask({ catalog, providers }, call, "image", ({ makeImages }) => makeImages);
  const [first, ...others] = found;
  const estimate = estimateInputs([prompt]);
  const tokensMost = n * model.maxOutputTokens;
  return {
    operation: "image_generation",
    // The maximum of the model is that of one image.
    model: { ...model, maxOutputTokens: tokensMost, contextWindow: Math.max(model.contextWindow, 2 * tokensMost) },
    routes: [routeFor(first, request), ...others.map((route) => routeFor(route, request))],
    ignored: [],
    labels: labelsOf(null, safety_identifier ?? user, model, request.model, principal.pins),
    output: { ...output, tokens: tokensMost },
    estimate: { ...estimate, most: estimate.most + ADDED_TOKENS_MOST, calls: { images: n } },
    isStreamed: false,
    isInputOnly: false,
    promptTexts: () => [prompt],
    send: async (provider, route) => {
      if (provider.makeImages === undefined) throw new Error(`The provider '${provider.id}' makes no images`);
      const inTurn = <Result>(work: () => Result) => longTasks.run(principal.organizationId, work);
      const answer = await provider.makeImages({ request, model: route.model, requestId, traceparent, signal, inTurn });
      return { ...answer, chunks: priced(answer.chunks, route) };
    },
  };
}

/** Tokens that an upstream may add to a prompt: OpenAI's example reports 50 for a prompt of 21 characters. */
const ADDED_TOKENS_MOST = 256;

type Kind = { [Part in "quality" | "size"]?: unknown };

/**
 * Returns a route at the prices of the image that is asked for. Where the request leaves its size or quality to the upstream,
 * all possible prices stay, and the highest applies unless the answer states what was made.
 */
function routeFor(route: Route, { n = 1, ...request }: ImageRequest): Route {
  const { serviceTiers = {}, ...others } = route;
  const possible = Object.entries(serviceTiers).filter(([name]) => isOf(name, request, isOpen));
  const isCertain = possible.length > 0 && possible.every(([name]) => isOf(name, request));
  const lists = isCertain ? mostSpecific(possible).slice(0, 1) : possible;
  return {
    ...others,
    ...dearestList([...(isCertain ? [] : [route]), ...lists.map(([, list]) => list)]),
    ...(!isCertain && possible.length > 0 && { serviceTiers: Object.fromEntries(possible) }),
    ...(route.callsMost !== undefined && { callsMost: n }),
  };
}

/** Tells whether a request leaves a part to the upstream. */
const isOpen = (stated: unknown) => stated === undefined || stated === "auto";

/** Adds to the fields of an answer which of the route's prices they choose. */
async function* priced(chunks: ProviderAnswer["chunks"], { serviceTiers = {} }: Route): ProviderAnswer["chunks"] {
  for await (const batch of chunks) {
    yield batch.map((chunk: UpstreamChunk) => {
      const [tier] = mostSpecific(Object.entries(serviceTiers).filter(([name]) => isOf(name, chunk.whole ?? {})));
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
