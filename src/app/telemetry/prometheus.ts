import type { IncomingMessage, ServerResponse } from "node:http";
import type { ResourceMetrics } from "@opentelemetry/sdk-metrics";
import type { Config } from "../../config.ts";
import { OperatorError } from "../../errors.ts";
import { isBearer, METRICS_TYPE } from "../../http/health.ts";
import { prometheusName } from "../../telemetry/metrics.ts";

/**
 * Returns metrics with the names and units that Prometheus expects: the serializer of OpenTelemetry's package adds no unit
 * to a name, and the dashboard must find the same names that Prometheus gives to metrics it receives by OTLP.
 */
export function toPrometheusNames(metrics: ResourceMetrics, kinds: Record<string, Named>): ResourceMetrics {
  return {
    ...metrics,
    scopeMetrics: metrics.scopeMetrics.map((scope) => ({
      ...scope,
      metrics: scope.metrics.map((metric) => {
        const row = kinds[metric.descriptor.name];
        const { descriptor } = metric;
        const name = row === undefined ? descriptor.name : prometheusName(descriptor.name, row);
        return { ...metric, descriptor: { ...descriptor, name, unit: "" } };
      }),
    })),
  };
}

type Named = Parameters<typeof prometheusName>[1];

/** Starts the server of `metrics.port`. Rejects with OperatorError if it cannot listen. */
export async function serveOnOwnPort(
  { host, port, token }: Config["metrics"],
  read: () => Promise<string>,
): Promise<{ stop(): Promise<void> }> {
  // Only here: an ES module that imports node:http makes Node load its own copy of undici, which takes 12 MiB.
  const { createServer } = await import("node:http");
  const server = createServer((request, response) => {
    respond(request, response, { token, read }).catch(() => response.writeHead(500).end());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const message = `cannot listen on port ${port} of ${host} for metrics: ${error.code}; change metrics.port or metrics.host`;
      reject(new OperatorError(message, { cause: error }));
    });
    server.listen(port, host, resolve);
  });
  return {
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function respond(
  { method, url, headers }: IncomingMessage,
  response: ServerResponse,
  { token, read }: { token: string | undefined; read(): Promise<string> },
): Promise<void> {
  const refuse = (status: number, further = {}) => response.writeHead(status, further).end();
  if (url?.split("?")[0] !== "/metrics") return void refuse(404);
  if (method !== "GET" && method !== "HEAD") return void refuse(405, { allow: "GET, HEAD" });
  if (token !== undefined && !isBearer(headers.authorization, token)) {
    return void refuse(401, { "www-authenticate": 'Bearer realm="metrics"' });
  }
  const text = await read();
  response.writeHead(200, { "content-type": METRICS_TYPE }).end(method === "HEAD" ? undefined : text);
}
