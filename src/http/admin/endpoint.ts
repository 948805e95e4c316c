import type { TSchema } from "typebox";
import * as schemas from "../../api/admin/schemas.ts";
import { operations } from "../../operations/list.ts";
import type { Operation } from "../../operations/operation.ts";

export const ADMIN_PREFIX = "/admin/v1";

/** An operation as the server registers and documents it. */
export interface AdminEndpoint
  extends Pick<Operation, "permission" | "summary" | "isRepeatable" | "countGuest" | "handle"> {
  operationId: string;
  method: string;
  /** Path under `/admin/v1`. */
  path: string;
  query: TSchema | undefined;
  body: TSchema | undefined;
  answer: Omit<Operation["answer"], "schema"> & { schema: TSchema | undefined };
}

export const adminEndpoints: readonly AdminEndpoint[] = Object.entries(operations).map(
  ([operationId, { route, query, body, answer, ...rest }]) => {
    const [method = "", path = ""] = route.split(" ");
    return {
      ...rest,
      ...{ operationId, method, path },
      query: query?.(schemas),
      body: body?.(schemas),
      answer: { ...answer, schema: answer.schema?.(schemas) },
    };
  },
);
