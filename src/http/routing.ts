import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../errors.ts";
import { ADMIN_PREFIX, adminEndpoints } from "./admin/endpoint.ts";
import { sendError } from "./errors.ts";
import {
  createChatCompletion,
  createEmbedding,
  createImages,
  createSpeech,
  createTextCompletion,
  createTranscription,
} from "./routes/completions.ts";
import type { Endpoint } from "./routes/endpoint.ts";
import { createGeminiContent, createGeminiContentV1, listGeminiModels, retrieveGeminiModel } from "./routes/gemini.ts";
import { countMessageTokens, createMessage } from "./routes/messages.ts";
import { listModels, retrieveModel } from "./routes/models.ts";
import { countResponseTokens, createResponse, deleteResponse, retrieveResponse, unserved } from "./routes/responses.ts";
import { reportUsage, showKey, showKeyInfo } from "./routes/usage.ts";

export const endpoints: readonly Endpoint[] = [
  createChatCompletion,
  createTextCompletion,
  createMessage,
  countMessageTokens,
  createResponse,
  countResponseTokens,
  retrieveResponse,
  deleteResponse,
  createGeminiContent,
  createGeminiContentV1,
  listGeminiModels,
  retrieveGeminiModel,
  createEmbedding,
  createImages,
  createSpeech,
  createTranscription,
  listModels,
  retrieveModel,
  reportUsage,
  showKey,
  showKeyInfo,
];

const API_PREFIX = "/v1";

const ROUTES = [...endpoints, ...adminEndpoints.map(({ method, path }) => ({ method, path: ADMIN_PREFIX + path }))].map(
  ({ method, path }) => {
    const pattern = path.replaceAll(".", "\\.").replace("*", ".+").replaceAll(/:\w+/g, "[^/]*");
    return { method, pattern: new RegExp(`^${pattern}$`, "s") };
  },
);

/** Endpoints of OpenAI and Anthropic that are not supported, by the beginning of their paths under `/v1`. */
const UNSUPPORTED = [
  ...["assistants", "audio/translations", "batches", "chat/completions", "containers", "conversations", "evals"],
  ...["files", "fine_tuning", "images/edits", "images/variations", "messages/batches", "moderations", "realtime"],
  ...["threads", "uploads", "vector_stores", "videos"],
];

/** Paths under `/v1` that exist and have no parameters. */
const PATHS = endpoints.flatMap(({ path }) => /^\/v1\/([a-z/_]+)$/.exec(path)?.[1] ?? []);

/** First path segments under `/v1` that clients of OpenAI and Anthropic use, including those that do not exist here. */
const API_SEGMENTS = new Set([...PATHS, ...UNSUPPORTED].map((path) => path.split("/")[0] ?? ""));

/** `Host` headers that are safe to repeat in a message. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/**
 * Answers a request without a route: 405 with the allowed methods if the path exists, or 426 for a WebSocket, after which Codex
 * sends requests instead; otherwise 404 with the base URL or the supported endpoints.
 */
export function respondNoRoute(request: FastifyRequest, reply: FastifyReply) {
  const path = requestPath(request);
  const isPublic = isPublicPath(path);
  if (isPublic) reply.header("access-control-allow-origin", "*");
  const absent = unserved(path);
  if (absent !== undefined) return sendError(reply, absent);
  const methods = ROUTES.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
  if (methods.length > 0) {
    if (request.headers.upgrade?.toLowerCase() === "websocket") {
      // RFC 9110, section 15.5.22.
      const headers = { upgrade: "HTTP/1.1", connection: "upgrade" };
      return sendError(reply, new ApiError("upgrade_required", undefined, { headers }));
    }
    const further = [...(methods.includes("GET") ? ["HEAD"] : []), ...(isPublic ? ["OPTIONS"] : [])];
    const allow = [...methods, ...further].join(", ");
    const message = `Method ${request.method} is not allowed for this path. Allowed methods: ${allow}.`;
    return sendError(reply, new ApiError("method_not_allowed", message, { headers: { allow } }));
  }
  return sendError(reply, new ApiError("not_found", notFoundMessage(request, path)));
}

function notFoundMessage(request: FastifyRequest, path: string): string | undefined {
  const base = `set the base URL to ${publicUrlOf(request)}${API_PREFIX}.`;
  if (lacksApiPrefix(path)) return `Route not found. The path lacks ${API_PREFIX}: ${base}`;
  if (!isPublicPath(path)) return undefined;
  if (isPublicPath(path.slice(API_PREFIX.length))) return `Route not found. The path repeats ${API_PREFIX}: ${base}`;
  const name = UNSUPPORTED.find((start) => `${path}/`.startsWith(`${API_PREFIX}/${start}/`));
  const unknown = `Route not found. Paths under ${API_PREFIX}: ${PATHS.join(", ")}.`;
  const reason = name === undefined ? unknown : `The endpoint ${API_PREFIX}/${name} is not supported.`;
  return `${reason} All supported endpoints: ${publicUrlOf(request)}/docs`;
}

/** True for a path that belongs to the API except that it lacks `/v1`. */
export function lacksApiPrefix(path: string): boolean {
  return API_SEGMENTS.has(path.split("/")[1] ?? "");
}

/** Returns the address of the service, with the host that the client used; only its path if that is not a valid host. */
export function publicUrlOf({ protocol, host, server }: FastifyRequest): string {
  return HOST.test(host) ? `${protocol}://${host}${server.basePath}` : server.basePath;
}

/** Returns the path of a request as the router matches it, without the origin (RFC 9112, section 3.2.2). */
export function requestPath({ url }: Pick<FastifyRequest, "url">): string {
  const path = (url.startsWith("/") ? url : url.replace(/^[^/?]*:\/\/[^/?]*/, "")).split(/[?#]/, 1)[0] ?? "";
  return path.replace(/\/{2,}/g, "/").replace(/(.)\/$/, "$1");
}

/** True for a path of the API that browsers may call from any origin. */
export function isPublicPath(path: string): boolean {
  return path === API_PREFIX || path.startsWith(`${API_PREFIX}/`) || isGeminiPath(path);
}

/** True for a path of Gemini's API. */
export function isGeminiPath(path: string): boolean {
  return /^\/v1(alpha|beta)\//.test(path);
}
