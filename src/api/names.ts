/** Names of the API are in snake case, those of rows and settings in camel case. */
export type SnakeCase<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${SnakeCase<Rest>}`
  : Name;

export function snakeCase<Name extends string>(name: Name): SnakeCase<Name> {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) as SnakeCase<Name>;
}

/** Returns an object whose fields have their names in snake case. */
export function inSnakeCase<Fields extends object>(fields: Fields) {
  const named = Object.entries(fields).map(([name, value]) => [snakeCase(name), value]);
  return Object.fromEntries(named) as { [Name in keyof Fields & string as SnakeCase<Name>]: Fields[Name] };
}

/** Returns an object whose fields have their names in camel case. */
export function inCamelCase(fields: object): Record<string, unknown> {
  const camelCase = (name: string) => name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [camelCase(name), value]));
}
