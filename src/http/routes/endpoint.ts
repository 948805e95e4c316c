import type { FastifyReply, FastifyRequest } from "fastify";
import type { TSchema } from "typebox";
import type { Scope } from "../../api/scope.ts";
import type { UsageReport } from "../../api/usage.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import type { RunningCompletions } from "../running-completions.ts";

/** What the endpoints need of the rest of the service. */
export interface EndpointServices {
  gateway: Gateway;
  running: RunningCompletions;
  /** Whether `messages` of an answer holds the reply alone or the conversation with it. */
  completionMessages: "reply" | "conversation";
  /** The credits of an organization. */
  usageReport(organizationId: string): Promise<UsageReport>;
}

/** An operation of the API. It declares itself; the server adds authentication, limits and documentation. */
export interface Endpoint {
  method: "GET" | "POST";
  /** Fastify's path; a `*` at the end takes what may hold slashes. */
  path: string;
  scope: Scope;
  operationId: string;
  summary: string;
  description: string;
  /** Those that the operation reads beside the ones of every operation; they document. */
  headers?: TSchema;
  body?: TSchema;
  /** The name and meaning of what `*` stands for. */
  wildcard?: { name: string; description: string };
  response: { description: string; schema: TSchema; eventSchema?: TSchema };
  handle(services: EndpointServices, request: FastifyRequest, reply: FastifyReply): Promise<unknown>;
}
