import type { FastifyReply, FastifyRequest } from "fastify";
import type { TSchema } from "typebox";
import type { AuditLog } from "../../admin/audit.ts";
import type { Directory } from "../../admin/directory.ts";
import type { ChatSettings } from "../../api/chat/decode.ts";
import type { Principal, Scope } from "../../api/principal.ts";
import type { UsageReport } from "../../api/usage.ts";
import type { ErrorFormat } from "../../api/wire.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import type { ResponseItems } from "../../ledger/response-items.ts";
import type { Conversations } from "../../reports/requests.ts";
import type { RunningRequests } from "../shutdown.ts";

export interface EndpointServices {
  gateway: Gateway;
  running: Pick<RunningRequests, "follow" | "currentEnded">;
  completions: ChatSettings;
  conversations: Pick<Conversations, "find" | "removeOne">;
  responseItems: Omit<ResponseItems, "removeOf">;
  directory: Pick<Directory, "token">;
  audit: Pick<AuditLog, "record">;
  usageReport(caller: Pick<Principal, "organizationId" | "callerId">): Promise<UsageReport>;
}

/** Declaration of an operation. The server adds authentication, limits and documentation. */
export interface Endpoint {
  method: "GET" | "POST" | "DELETE";
  /** Path in Fastify's notation; a `*` at the end matches slashes too. */
  path: string;
  scope: Scope;
  operationId: string;
  summary: string;
  description: string;
  /** Documentation of the headers that only this operation reads. */
  headers?: TSchema;
  body?: TSchema;
  /** True if the body is a form with a file, and not JSON. */
  isForm?: boolean;
  /** Name and meaning of the part that `*` matches. */
  wildcard?: { name: string; description: string };
  /** Format of error responses; default: OpenAI's. */
  errors?: ErrorFormat;
  response: { description: string; schema: TSchema; eventSchema?: TSchema; contentType?: string };
  handle(services: EndpointServices, request: FastifyRequest, reply: FastifyReply): Promise<unknown>;
}
