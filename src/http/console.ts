import { existsSync, readFileSync } from "node:fs";
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

/** Serves the web console at `/`, from its build, whose page names its files relative to the root of the service. */
export async function serveConsole(server: FastifyInstance, build = BUILD): Promise<void> {
  if (!existsSync(join(build, "index.html"))) {
    const message = "The console is not built yet: run `npm start`, or `node scripts/build-console.ts`.";
    server.get("/", () => Promise.reject(new ApiError("not_found", message)));
    return;
  }
  const page = pageAt(server.basePath, readFileSync(join(build, "index.html"), "utf8"));
  await server.register(fastifyStatic, {
    root: build,
    globIgnore: ["index.html"],
    // A route for each file, so that what is no file of the build stays what it was: not found.
    wildcard: false,
    preCompressed: true,
    cacheControl: false,
    setHeaders: (reply, path) => prepare(reply, path),
  });
  const send = (reply: FastifyReply) =>
    reply
      .headers({ ...HEADERS, "cache-control": "no-store" })
      .type("text/html; charset=utf-8")
      .send(page);
  const sendPage = (request: FastifyRequest, reply: FastifyReply) => {
    // `/models` is also what a client calls whose base URL lacks `/v1`.
    if (!lacksApiPrefix(pathOf(request))) return send(reply);
    reply.header("vary", "Accept, Sec-Fetch-Dest");
    return isNavigation(request) ? send(reply) : answerUnknown(request, reply);
  };
  server.get("/", sendPage);
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

/** The page for a base path: it tells the path to its scripts, and loads its files from there. */
function pageAt(basePath: string, page: string): string {
  return page.replaceAll('="./', `="${basePath}/`).replace('data-base-path=""', `data-base-path="${basePath}"`);
}

/** A file with a hash of its content in its name never changes; browsers ask for the others again each time. */
function prepare(reply: FastifyReply, path: string): void {
  const isHashed = /[\\/]assets[\\/]/.test(path);
  const cacheControl = isHashed ? `public, max-age=${A_YEAR_S}, immutable` : "no-cache";
  reply.headers({ ...HEADERS, "cache-control": cacheControl });
}
