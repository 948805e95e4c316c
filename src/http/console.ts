import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../errors.ts";
import { UNKNOWN_PATH } from "./access.ts";
import { ADMIN_PREFIX } from "./admin/endpoint.ts";
import { isPublicPath, lacksApiPrefix, requestPath, respondNoRoute } from "./routing.ts";

/** Next to src/ in a clone, next to dist/ in the packed package. */
const BUILD = fileURLToPath(new URL("../../console/dist", import.meta.url));

/** Paths of the console's pages. The same document serves them all. */
const PAGES = [
  "/organizations",
  "/credits",
  "/vouchers",
  "/statements",
  "/tokens",
  "/requests",
  "/models",
  "/playground",
  "/warnings",
  "/audit",
  "/sign-in",
];

/** Content security policy of the console: only resources of this service, nothing inline, no embedding, no text as markup. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // Blobs: images that a page has itself, such as those of an answer in the playground.
  "img-src 'self' blob:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");

const HEADERS = {
  "content-security-policy": POLICY,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
};
const A_YEAR_S = 31_536_000;

/** Serves the web console at `/`, from its build, whose page names its files relative to the root of the service. */
export async function serveConsole(server: FastifyInstance, build = BUILD): Promise<void> {
  if (!existsSync(join(build, "index.html"))) {
    const message = "The console is not built. Run `npm start` or `node scripts/build-console.ts`.";
    // Clients probe the service with HEAD.
    server.head("/", (_request, reply) => reply.send());
    server.get("/", { exposeHeadRoute: false }, () => Promise.reject(new ApiError("not_found", message)));
    return;
  }
  const page = readFileSync(join(build, "index.html"), "utf8")
    .replaceAll('="./', `="${server.basePath}/`)
    .replace('data-base-path=""', `data-base-path="${server.basePath}"`);
  await server.register(fastifyStatic, {
    root: build,
    globIgnore: ["index.html"],
    // One route per file, so that other paths are still not found.
    wildcard: false,
    preCompressed: true,
    cacheControl: false,
    setHeaders: setFileHeaders,
  });
  const send = (reply: FastifyReply) =>
    reply
      .headers({ ...HEADERS, "cache-control": "no-store" })
      .type("text/html; charset=utf-8")
      .send(page);
  const sendPage = (request: FastifyRequest, reply: FastifyReply) => {
    // Clients whose base URL lacks `/v1` also request `/models`.
    if (!lacksApiPrefix(requestPath(request))) return send(reply);
    reply.header("vary", "Accept, Sec-Fetch-Dest");
    return isNavigation(request) ? send(reply) : respondNoRoute(request, reply);
  };
  server.get("/", sendPage);
  server.get("/docs", sendPage);
  for (const path of PAGES) {
    server.get(path, sendPage);
    server.get(`${path}/*`, sendPage);
  }
  // A person who opens another path sees the console's page for it; programs get the error of the API.
  server.get(UNKNOWN_PATH, (request, reply) => {
    const path = requestPath(request);
    const isApi = isPublicPath(path) || lacksApiPrefix(path) || `${path}/`.startsWith(`${ADMIN_PREFIX}/`);
    if (isApi) return respondNoRoute(request, reply);
    // Caches may keep a 404, and must not answer a person with the one of a program.
    reply.header("vary", "Accept, Sec-Fetch-Dest");
    return isNavigation(request) ? send(reply.code(404)) : respondNoRoute(request, reply);
  });
}

/** True when a browser loads a page. Without `Sec-Fetch-Dest` (plain HTTP), the `Accept` header decides. */
function isNavigation({ headers }: FastifyRequest): boolean {
  const destination = headers["sec-fetch-dest"];
  if (destination !== undefined) return destination === "document";
  return headers.accept?.includes("text/html") === true;
}

/** Sets the headers of a file. Files with a hash in their names never change; browsers revalidate the others. */
function setFileHeaders(reply: FastifyReply, path: string): void {
  const isHashed = /[\\/]assets[\\/]/.test(path);
  const cacheControl = isHashed ? `public, max-age=${A_YEAR_S}, immutable` : "no-cache";
  reply.headers({ ...HEADERS, "cache-control": cacheControl });
}
