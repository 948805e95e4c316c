export type Schema = Readonly<Record<string, unknown>>;

/** A schema that asks for more than the sandbox can make up; the message names what. */
export class UnsupportedSchemaError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UnsupportedSchemaError";
  }
}
