import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../errors.ts";
import { answerUnknown, lacksApiPrefix, pathOf } from "./unknown-route.ts";

/** Beside src/ in a clone, beside dist/ in the packed package. */
const BUILD = fileURLToPath(new URL("../../console/dist", import.meta.url));

/** Where the console's pages are; each is the same document, which then shows the page. */
const PAGES = ["/organizations", "/credits", "/tokens", "/requests", "/models", "/playground", "/changes"];

/**
 * The console takes everything from this service, nothing from a text of its own page, and is shown in no other page.
 * No text becomes markup: the browser refuses it (Trusted Types).
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
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

/** Serves the web console at `/`, from its build. */
export async function serveConsole(server: FastifyInstance, build = BUILD): Promise<void> {
  if (!existsSync(join(build, "index.html"))) {
    const message = "The console is not built yet: run `npm start`, or `node scripts/build-console.ts`.";
    server.get("/", () => Promise.reject(new ApiError("not_found", message)));
    return;
  }
  await server.register(fastifyStatic, {
    root: build,
    // A route for each file, so that what is no file of the build stays what it was: not found.
    wildcard: false,
    preCompressed: true,
    cacheControl: false,
    setHeaders: (reply, path) => prepare(reply, path),
  });
  const sendPage = (request: FastifyRequest, reply: FastifyReply) => {
    // `/models` is also what a client calls whose base URL lacks `/v1`.
    if (!lacksApiPrefix(pathOf(request))) return reply.sendFile("index.html");
    reply.header("vary", "Accept, Sec-Fetch-Dest");
    return isNavigation(request) ? reply.sendFile("index.html") : answerUnknown(request, reply);
  };
  for (const path of PAGES) {
    server.get(path, sendPage);
    server.get(`${path}/*`, sendPage);
  }
}

/**
 * Whether a browser loads a page. Browsers say so in `Sec-Fetch-Dest` (Fetch Metadata), but not to plain HTTP from
 * another machine; there the accepted types tell.
 */
function isNavigation({ headers }: FastifyRequest): boolean {
  const destination = headers["sec-fetch-dest"];
  if (destination !== undefined) return destination === "document";
  return headers.accept?.includes("text/html") === true;
}

/** What has its content's hash in its name never changes; the rest is asked for anew each time. */
function prepare(reply: FastifyReply, path: string): void {
  const isPage = path.includes("index.html");
  const isHashed = /[\\/]assets[\\/]/.test(path);
  const cacheControl = isHashed ? `public, max-age=${A_YEAR_S}, immutable` : isPage ? "no-store" : "no-cache";
  reply.headers({ ...HEADERS, "cache-control": cacheControl });
}
