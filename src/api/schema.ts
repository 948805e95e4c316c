import { type Static, type TOptional, type TProperties, type TSchema, type TSchemaOptions, Type } from "typebox";

/** Parts that the schemas of several wires have in common. */

export const TokenCount = Type.Integer({ minimum: 0 });
export const OptionalText = Type.Optional(Type.String());
export const OptionalFlag = Type.Optional(Type.Boolean());
/** Data of a client without named fields, such as a JSON schema or the input of a tool. */
export const Json = Type.Record(Type.String(), Type.Unknown());

export const Nullable = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options);

/** Schemas with a description. */
export const TextOf = (description: string) => Type.String({ description });
export const FlagOf = (description: string) => Type.Boolean({ description });
export const IntegerOf = (description: string) => Type.Integer({ description });
export const CountOf = (description: string) => Type.Integer({ minimum: 0, description });
export const NumberOf = (description: string) => Type.Number({ description });
export const ObjectOf = <T extends TProperties>(description: string, fields: T) => Type.Object(fields, { description });
export const ListOf = <T extends TProperties>(description: string, fields: T) =>
  Type.Array(Type.Object(fields), { description });

/** Schema of an object without other fields. */
export const Strict = <T extends Record<string, TSchema>>(properties: T, options: object = {}) =>
  Type.Object(properties, { additionalProperties: false, ...options });

/** Schema of an object with this `type`. */
export const Typed = <const Name extends string, Fields extends TProperties>(type: Name, fields: Fields) =>
  Type.Object({ type: Type.Literal(type), ...fields });

/** Union of object schemas with a discriminator, in the form that validators and code generators understand. */
export const TaggedUnion = <T extends TSchema[]>(schemas: readonly [...T], tag = "type") =>
  Type.Unsafe<Static<T[number]>>({
    type: "object",
    required: [tag],
    discriminator: { propertyName: tag },
    oneOf: schemas,
  });

/** Marks fields that may be absent. */
export const OptionalKeys = <T extends Record<string, TSchema>>(properties: T) =>
  Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, Type.Optional(schema)])) as {
    [Name in keyof T]: TOptional<T[Name]>;
  };

/** Schema of an object whose fields may all be absent. */
export const PartialObject = <T extends Record<string, TSchema>>(fields: T) => Type.Object(OptionalKeys(fields));
