import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import { type Static, type TSchema, Type } from "typebox";
import { joinedChoices, pathOf, printable, shown, typeOf, withArticle } from "./wording.ts";

/** Body of every error response; some errors have additional fields. */
export const ErrorEnvelope = Type.Object({
  error: Type.Object({
    message: Type.String(),
    type: Type.String(),
    param: Type.Union([Type.String(), Type.Null()]),
    code: Type.Union([Type.String(), Type.Null()]),
    credits_available: Type.Optional(Type.Number()),
    credits_required: Type.Optional(Type.Number()),
    affordable_max_tokens: Type.Optional(Type.Integer()),
  }),
});
export type ErrorEnvelope = Static<typeof ErrorEnvelope>;

/** First problem of a value: a code of the error catalog, the path of the field, and a message. */
export interface ValidationIssue {
  code:
    | "missing_required_parameter"
    | "unknown_parameter"
    | "invalid_type"
    | "body_too_large"
    | "invalid_value"
    | "unsupported_value"
    | "decimal_above_max_value"
    | "decimal_below_min_value"
    | "previous_response_not_found";
  param: string | null;
  message: string;
  /** The message without the value, if `message` quotes a text of the request. */
  loggedMessage?: string;
}

/** A request that breaks a rule. Its message is public. */
export class InvalidRequestError extends Error {
  readonly issue: ValidationIssue;

  constructor(issue: ValidationIssue) {
    super(issue.message);
    this.name = "InvalidRequestError";
    this.issue = issue;
  }
}

/** Throws InvalidRequestError. */
export function refuse(issue: ValidationIssue): never {
  throw new InvalidRequestError(issue);
}

/** Throws InvalidRequestError if there is an issue. */
export function refuseIf(issue: ValidationIssue | undefined): void {
  if (issue !== undefined) refuse(issue);
}

/** Returns the schema of a field that is refused unless its value is neutral. `reason` follows the field's name. */
export function refused(reason: string, ...neutral: unknown[]): object {
  return { enum: [null, ...neutral], refusal: reason };
}

const FIELD_CHARACTERS_MAX = 128;

/** Strict: nothing is coerced, defaulted or removed. */
const ajv = new Ajv({
  strict: false,
  // JSON.parse reads 1e309 as Infinity, which JSON cannot represent.
  strictNumbers: true,
  discriminator: true,
  verbose: true,
  // Validation of the schemas would take half as long as their compilation, and TypeBox makes valid schemas.
  meta: false,
  validateSchema: false,
  // Ajv's own optimization takes half of the compilation, and the checks are as fast without it.
  code: { optimize: false },
});

/** Returns a check that returns the first issue. It is compiled at its first use: all schemas take a third of a start. */
export function compileCheck(schema: TSchema): (value: unknown) => ValidationIssue | undefined {
  let validate: ValidateFunction | undefined;
  return (value) => {
    validate ??= ajv.compile(schema);
    return validate(value) ? undefined : issueOf(mostSpecific(validate.errors ?? []));
  };
}

/** Returns the error of the intended branch of a union: the deepest one, and rather another than that of the type. */
function mostSpecific(errors: ErrorObject[]): ErrorObject {
  let best: ErrorObject | undefined;
  for (const error of errors) if (best === undefined || specificity(error) > specificity(best)) best = error;
  if (best === undefined) throw new Error("A failed validation without an error");
  return best;
}

const KEYWORD_SPECIFICITY: Record<string, number> = { type: 0, anyOf: 0.25 };

function specificity(error: ErrorObject): number {
  return error.instancePath.split("/").length + (KEYWORD_SPECIFICITY[error.keyword] ?? 0.5);
}

function issueOf(error: ErrorObject): ValidationIssue {
  const path = pathOf(error.instancePath);
  const param = path === "" ? null : path;
  const refusal: string | undefined = error.parentSchema?.refusal;
  if (refusal !== undefined) {
    return { code: "unsupported_value", param, message: `Unsupported value of '${param}': ${refusal}.` };
  }
  switch (error.keyword) {
    case "required":
      return missing(below(path, error.params.missingProperty));
    case "additionalProperties":
      return unknown(path, error);
    case "discriminator":
      return error.params.tagValue === undefined
        ? missing(below(path, error.params.tag))
        : notAmong(`${path}.${error.params.tag}`, error.params.tagValue, tagValues(error));
    case "enum":
      return notAmong(path, error.data, error.params.allowedValues);
    case "const":
      return notAmong(path, error.data, [error.params.allowedValue]);
    case "type":
      return wrongType(param, [error.params.type].flat().map(withArticle).join(" or "), error.data);
    case "anyOf":
      return wrongType(param, unionTypes(error.schema).join(" or "), error.data);
    case "minimum":
    case "maximum":
      return rangeIssue(path, error);
    default: {
      const fault = FAULTS[error.keyword]?.(error) ?? `: it ${error.message ?? "is not allowed"}.`;
      return { code: "invalid_value", param, message: `Invalid ${nameOf(param)}${fault}` };
    }
  }
}

/** The end of the sentence about a value that breaks a rule of its own type, by the keyword of the rule. */
const FAULTS: Record<string, (error: ErrorObject) => string> = {
  minItems: () => ": empty array. Expected an array with minimum length 1.",
  maxItems: ({ params: { limit } }) => `: array too long. Expected at most ${limit} items.`,
  minLength: () => ": empty string. Expected a string with minimum length 1.",
  maxLength: ({ params: { limit } }) => `: string too long. Expected at most ${limit} characters.`,
  pattern: ({ parentSchema }) => `. Expected: ${parentSchema?.description}`,
  exclusiveMinimum: ({ params: { limit }, data }) => `: expected a value > ${limit}, but got ${shown(data)}.`,
  minProperties: ({ params: { limit } }) =>
    `: empty object. Expected at least ${limit} ${limit === 1 ? "field" : "fields"}.`,
  maxProperties: ({ params: { limit } }) => `: too many entries. Expected at most ${limit}.`,
};

/** Returns the issue of a value that is not allowed; `reason` follows its name and ends the sentence. */
export function invalid(param: string, reason: string): ValidationIssue {
  return { code: "invalid_value", param, message: `Invalid '${param}': ${reason}.` };
}

/** Returns the issue of a field that is absent. */
export function missing(param: string): ValidationIssue {
  return { code: "missing_required_parameter", param, message: `Missing required parameter: '${param}'.` };
}

/** Returns the issue of two fields that exclude each other; `advice` follows the sentence about them. */
export function together(param: string, other: string, advice = ""): ValidationIssue {
  const message = `Setting '${param}' and '${other}' at the same time is not supported.${advice}`;
  return { code: "invalid_value", param, message };
}

/** Returns the issue of a value of another type; `param` is null for the whole body. */
export function wrongType(param: string | null, expected: string, found: unknown): ValidationIssue {
  const message = `Invalid type for ${nameOf(param)}: expected ${expected}, but got ${typeOf(found)} instead.`;
  return { code: "invalid_type", param, message };
}

function nameOf(param: string | null): string {
  return param === null ? "the request body" : `'${param}'`;
}

function below(path: string, field: string): string {
  return path === "" ? field : `${path}.${field}`;
}

function unknown(path: string, error: ErrorObject): ValidationIssue {
  const name = printable(String(error.params.additionalProperty), FIELD_CHARACTERS_MAX);
  const param = below(path, name);
  const known = Object.keys((error.parentSchema?.properties ?? {}) as object).join(", ");
  const message = `Unknown parameter: '${param}'. Supported parameters are: ${known || "none"}.`;
  return { code: "unknown_parameter", param, message };
}

function notAmong(param: string, found: unknown, allowed: unknown[]): ValidationIssue {
  const choices = joinedChoices(allowed);
  if (typeof found !== typeof allowed[0]) return wrongType(param, `one of ${choices}`, found);
  const supported = `Supported values are: ${choices}.`;
  const message = `Invalid value: ${shown(found)}. ${supported}`;
  return { code: "invalid_value", param, message, loggedMessage: `Invalid value. ${supported}` };
}

function rangeIssue(param: string, { params: { limit }, data, keyword, parentSchema }: ErrorObject): ValidationIssue {
  const kind = parentSchema?.type === "integer" ? "integer" : "decimal";
  return outOfRange(param, kind, keyword === "maximum" ? "above" : "below", limit, data);
}

/** Returns the issue of a number that is above its maximum or below its minimum, which is `limit`. */
export function outOfRange(
  param: string,
  kind: "integer" | "decimal",
  where: "above" | "below",
  limit: number,
  found: unknown,
): ValidationIssue {
  const [bound, sign] = where === "above" ? ["above maximum", "<="] : ["below minimum", ">="];
  const message = `Invalid '${param}': ${kind} ${bound} value. Expected a value ${sign} ${limit}, but got ${shown(found)} instead.`;
  const decimal = where === "above" ? "decimal_above_max_value" : "decimal_below_min_value";
  return { code: kind === "integer" ? "invalid_value" : decimal, param, message };
}

function tagValues(error: ErrorObject): unknown[] {
  const tag: string = error.params.tag;
  const branches = (error.parentSchema?.oneOf ?? []) as { properties: Record<string, { const: unknown }> }[];
  return branches.map((branch) => branch.properties[tag]?.const);
}

function unionTypes(schema: unknown): string[] {
  const branches = schema as { type?: string | undefined }[];
  return [...new Set(branches.map(({ type = "string" }) => withArticle(type)))];
}
