import type { FastifyInstance } from "fastify";

/** `/healthz`: the process runs. `/readyz`: it takes requests and its store answers. */
export function serveHealth(server: FastifyInstance, ping: () => Promise<void>): { drain(): void } {
  let isDraining = false;
  server.get("/healthz", async () => ({ status: "ok" }));
  server.get("/readyz", async (_request, reply) => {
    if (isDraining) return reply.code(503).send({ status: "draining" });
    try {
      await ping();
      return { status: "ready" };
    } catch {
      return reply.code(503).send({ status: "store_unavailable" });
    }
  });
  return {
    drain: () => {
      isDraining = true;
    },
  };
}
