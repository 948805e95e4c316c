import { type TSchema, Type } from "typebox";

/** Schema of a number that is kept as decimal text, so that no price passes through a float. */
export const Decimal = (options: object) =>
  Type.Unsafe<string>({
    type: ["string", "number"],
    format: "decimal",
    minimum: 0,
    allowed: DECIMAL_WORDS,
    ...options,
  });
export const DECIMAL_WORDS = "a decimal number, 0 or more, such as 0.25";
export const Count = (maximum: number, options: object) => Type.Integer({ minimum: 1, maximum, ...options });
export const Group = <T extends Record<string, TSchema>>(properties: T, options: object = {}) =>
  Type.Object(properties, { additionalProperties: false, default: {}, ...options });
export const Name = (options: object) =>
  Type.String({ pattern: "^[^\\s\\p{Cc}]{1,200}$", allowed: "1 to 200 characters without spaces", ...options });

export const ONE_BILLION = 1_000_000_000;
