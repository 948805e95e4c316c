import { type SnakeCase, snakeCase } from "../api/names.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";

type Shown<Name, Value> = Value extends bigint
  ? number
  : Value extends number
    ? Name extends `${string}AtMs`
      ? string
      : number
    : Value;
type Entity<Row> = {
  [Name in keyof Row & string as SnakeCase<Name extends `${infer Event}AtMs` ? `${Event}At` : Name>]: Shown<
    Name,
    Row[Name]
  >;
};

/** Formats a row for the admin API: names in snake case, times (`createdAtMs`) in ISO 8601 (`created_at`), micro-credits as credits. */
export function entityOf<const Kind extends string, Row extends object>(object: Kind, row: Row) {
  const fields = Object.entries(row).map(([name, value]) => {
    if (name.endsWith("AtMs")) return [snakeCase(name.slice(0, -"Ms".length)), isoTime(value)];
    return [snakeCase(name), typeof value === "bigint" ? creditsFromMicro(value) : value];
  });
  return { object, ...Object.fromEntries(fields) } as { object: Kind } & Entity<Row>;
}
