import type { TSchema } from "typebox";
import { compileCheck } from "../../api/validation.ts";
import { ApiError } from "../../errors.ts";

type Check = (value: unknown) => void;

/**
 * Checks an input against its schema; throws the catalog's error for the first thing that is wrong with it. The schema is
 * compiled at the first check: a service whose console nobody uses keeps no memory for it.
 */
export function checker(schema: TSchema): Check {
  let check: ReturnType<typeof compileCheck> | undefined;
  return (value) => {
    check ??= compileCheck(schema);
    const issue = check(value);
    if (issue === undefined) return;
    throw new ApiError(issue.code, issue.message, { param: issue.param ?? undefined });
  };
}

const INTEGER = /^\d{1,15}$/;

/** A query's texts as the types that its schema asks for, where they read as such; the check refuses what does not. */
export function queryOf(schema: TSchema, query: Record<string, unknown>): Record<string, unknown> {
  const { properties } = schema as TSchema & { properties: Record<string, { type?: string }> };
  return Object.fromEntries(
    Object.entries(query).map(([name, value]) => {
      const isInteger = Object.hasOwn(properties, name) && properties[name]?.type === "integer";
      return [name, isInteger && typeof value === "string" && INTEGER.test(value) ? Number(value) : value];
    }),
  );
}

/** Throws invalid_value where a text holds the character NUL, which no store keeps in every place. */
export function refuseNul(value: unknown): void {
  if (typeof value === "string" && value.includes("\0")) {
    throw new ApiError("invalid_value", "The character NUL is allowed nowhere.");
  }
  if (typeof value === "object" && value !== null) for (const member of Object.values(value)) refuseNul(member);
}
