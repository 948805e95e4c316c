import { type Schema, UnsupportedSchemaError } from "./work.ts";

/** The number nearest to 0 that a schema allows, or the `variant`th after it. Throws UnsupportedSchemaError. */
export function minimalNumber(schema: Schema, variant: number): number {
  const step = stepOf(schema);
  const low = bound(schema.minimum, schema.exclusiveMinimum, Math.max, Number.NEGATIVE_INFINITY);
  const high = bound(schema.maximum, schema.exclusiveMaximum, Math.min, Number.POSITIVE_INFINITY);
  const isUpwards = low.value > 0 || (low.value === 0 && low.isExclusive) || high.value > 0;
  let found = 0;
  if (low.value > 0 || (low.value === 0 && low.isExclusive)) found = Math.ceil(low.value / step) * step;
  else if (high.value < 0 || (high.value === 0 && high.isExclusive)) found = Math.floor(high.value / step) * step;
  const direction = isUpwards || high.value === Number.POSITIVE_INFINITY ? step : -step;
  if (low.isExclusive && found === low.value) found += direction;
  else if (high.isExclusive && found === high.value) found += direction;
  found += variant * direction;
  const isAbove = found > low.value || (found === low.value && !low.isExclusive);
  const isBelow = found < high.value || (found === high.value && !high.isExclusive);
  if (isAbove && isBelow) return found + 0;
  const isWhole = schema.type === "integer" || schema.multipleOf !== undefined;
  const middle = (low.value + high.value) / 2;
  if (!isWhole && variant === 0 && low.value < high.value && Number.isFinite(middle)) return middle;
  throw new UnsupportedSchemaError("it allows no number in one place");
}

function stepOf({ multipleOf, type }: Schema): number {
  if (typeof multipleOf !== "number" || multipleOf <= 0) return 1;
  if (!isIntegerType(type) || Number.isInteger(multipleOf)) return multipleOf;
  throw new UnsupportedSchemaError("an integer must be a multiple of a fraction");
}

function isIntegerType(type: unknown): boolean {
  return type === "integer" || (Array.isArray(type) && type[0] === "integer");
}

interface Bound {
  value: number;
  isExclusive: boolean;
}

/** `exclusive` is a number, or, as in draft 4, true for a bound that is meant without itself. */
function bound(
  inclusive: unknown,
  exclusive: unknown,
  tighter: (one: number, other: number) => number,
  none: number,
): Bound {
  const value = typeof inclusive === "number" ? inclusive : none;
  if (exclusive === true) return { value, isExclusive: true };
  if (typeof exclusive !== "number") return { value, isExclusive: false };
  const isExclusive = tighter(value, exclusive) === exclusive;
  return { value: isExclusive ? exclusive : value, isExclusive };
}
