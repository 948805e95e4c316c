import { isObject, type JsonObject } from "../../api/json.ts";
import { printable } from "../../api/wording.ts";
import { unsupportedField } from "../provider.ts";

const FOLLOWED: ReadonlySet<string> = new Set([
  ...["const", "default", "enum", "type", "anyOf", "$ref"],
  ...["properties", "required", "additionalProperties", "items", "minItems", "maxItems"],
  ...["minLength", "maxLength", "minimum", "maximum"],
]);
/** Keywords that allow and forbid no value. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  ...["title", "description", "examples", "deprecated", "readOnly", "writeOnly"],
  ...["$schema", "$id", "$comment", "$defs", "definitions"],
]);
const DEPTH_MAX = 64;
/** Limit of what an example may cost. A value costs its length and a little more, so that examples are small and fast. */
const COST_MAX = 100_000;
const COST_OF_A_VALUE = 10;
const SHOWN_CHARACTERS_MAX = 160;

/** Makes a small value that a JSON schema, in the field `param`, allows. Throws UpstreamError `unsupported`. */
export function exampleOf(schema: unknown, param: string): unknown {
  return new ExampleMaker(schema, param).make(schema, "#", 0);
}

class ExampleMaker {
  readonly #root: unknown;
  readonly #param: string;
  #cost = 0;

  constructor(root: unknown, param: string) {
    this.#root = root;
    this.#param = param;
  }

  make(schema: unknown, place: string, depth: number): unknown {
    if (depth > DEPTH_MAX) this.#refuse("a schema that is nested so deeply, or without an end", place);
    this.#spend(COST_OF_A_VALUE, place);
    if (schema === true) return "";
    if (!isObject(schema))
      return this.#refuse(schema === false ? "a schema that allows no value" : "this kind of schema", place);
    const keywords = Object.keys(schema).filter((keyword) => !ANNOTATIONS.has(keyword));
    const other = keywords.find((keyword) => !FOLLOWED.has(keyword));
    if (other !== undefined) this.#refuse(`the keyword '${printable(other, SHOWN_CHARACTERS_MAX)}'`, place);
    for (const given of [schema.const, schema.default, Array.isArray(schema.enum) ? schema.enum[0] : undefined]) {
      if (given === undefined) continue;
      this.#spend(JSON.stringify(given).length, place);
      return given;
    }
    const single = ["$ref", "anyOf"].find((keyword) => schema[keyword] !== undefined);
    if (single !== undefined && keywords.length > 1) this.#refuse(`other keywords beside '${single}'`, place);
    if (schema.$ref !== undefined) return this.make(this.#resolve(schema.$ref, place), String(schema.$ref), depth + 1);
    if (Array.isArray(schema.anyOf)) return this.make(schema.anyOf[0], `${place}/anyOf/0`, depth + 1);
    return this.#makeOfType(schema, place, depth);
  }

  #makeOfType(schema: JsonObject, place: string, depth: number): unknown {
    const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
    switch (type ?? (schema.properties === undefined && schema.required === undefined ? "string" : "object")) {
      case "object":
        return this.#makeObject(schema, place, depth);
      case "array":
        return this.#makeArray(schema, place, depth);
      case "string": {
        const length = countOf(schema.minLength);
        this.#spend(length, place);
        return "a".repeat(length);
      }
      case "number":
      case "integer":
        return nearestToZero(schema, type === "integer");
      case "boolean":
        return false;
      case "null":
        return null;
      default:
        return this.#refuse("this type", `${place}/type`);
    }
  }

  #makeObject({ properties, required }: JsonObject, place: string, depth: number): JsonObject {
    const known = isObject(properties) ? properties : {};
    const names: readonly unknown[] = Array.isArray(required) ? required : [];
    const members = names.map((name) => {
      const isKnown = typeof name === "string" && Object.hasOwn(known, name);
      if (!isKnown) return this.#refuse("a required property that 'properties' does not describe", place);
      this.#spend(name.length, place);
      return [name, this.make(known[name], `${place}/properties/${name}`, depth + 1)] as const;
    });
    return Object.fromEntries(members);
  }

  #makeArray({ minItems, items = true }: JsonObject, place: string, depth: number): unknown[] {
    const made: unknown[] = [];
    for (let left = countOf(minItems); left > 0; left -= 1) made.push(this.make(items, `${place}/items`, depth + 1));
    return made;
  }

  #resolve(reference: unknown, place: string): unknown {
    if (typeof reference !== "string") return this.#refuse("this '$ref'", place);
    this.#spend(reference.length, place);
    const [start, ...steps] = reference.split("/");
    const target = steps.reduce(
      (holder, step) => (isObject(holder) && Object.hasOwn(holder, step) ? holder[step] : undefined),
      this.#root,
    );
    return start === "#" && target !== undefined ? target : this.#refuse("this '$ref'", place);
  }

  #spend(cost: number, place: string): void {
    this.#cost += cost;
    if (this.#cost > COST_MAX) this.#refuse("a schema whose smallest example is so large", place);
  }

  #refuse(what: string, place: string): never {
    const at = printable(place, SHOWN_CHARACTERS_MAX);
    const reason = `the sandbox does not support ${what} (at ${at})`;
    throw unsupportedField(this.#param, reason);
  }
}

function nearestToZero({ minimum, maximum }: JsonObject, isWhole: boolean): number {
  const least = typeof minimum === "number" ? minimum : Number.NEGATIVE_INFINITY;
  const most = typeof maximum === "number" ? maximum : Number.POSITIVE_INFINITY;
  if (least > 0) return isWhole ? Math.ceil(least) : least;
  if (most < 0) return isWhole ? Math.floor(most) : most;
  return 0;
}

function countOf(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}
