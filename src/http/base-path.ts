import type { FastifyInstance } from "fastify";

declare module "fastify" {
  interface FastifyInstance {
    /** Path under which a proxy publishes the service, without a slash at its end; empty: the root. */
    basePath: string;
  }
}

const HSTS = "max-age=31536000";

/**
 * Returns Fastify's `rewriteUrl` for a base path: it removes the path where a proxy passes it on. A proxy that strips it
 * works as well, because other URLs stay as they are. Undefined without a base path.
 */
export function rewriteUrlFor(basePath: string): ((request: { url?: string | undefined }) => string) | undefined {
  if (basePath === "") return undefined;
  return ({ url = "/" }) => {
    if (!url.startsWith(basePath)) return url;
    const rest = url.slice(basePath.length);
    if (rest === "" || rest.startsWith("?")) return `/${rest}`;
    return rest.startsWith("/") ? rest : url;
  };
}

/**
 * Tells browsers to use TLS only (RFC 6797), on every answer to a request that reached a trusted proxy over TLS. RFC 6797,
 * section 7.2, forbids the header on answers over plain HTTP.
 */
export function sendStrictTransportSecurity(server: FastifyInstance): void {
  server.addHook("onRequest", (request, reply, done) => {
    if (request.protocol === "https") reply.header("strict-transport-security", HSTS);
    done();
  });
}
