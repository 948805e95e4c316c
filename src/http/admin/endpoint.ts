import * as schemas from "../../api/admin/schemas.ts";
import { operations } from "../../operations/list.ts";
import type { Operation } from "../../operations/operation.ts";

export const ADMIN_PREFIX = "/admin/v1";

export type AdminEndpoint = ReturnType<typeof endpointOf>;

function endpointOf([operationId, operation]: [string, Operation]) {
  const { route, query, body, answer, ...rest } = operation;
  const [method = "", path = ""] = route.split(" ");
  return {
    ...{ ...rest, operationId, method, path, query: query?.(schemas), body: body?.(schemas) },
    answer: { ...answer, schema: answer.schema?.(schemas) },
  };
}

export const adminEndpoints = Object.entries(operations).map(endpointOf);
