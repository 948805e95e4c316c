export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value as text; undefined where it is anything else. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
