import { BenchmarkError, type GatewayDescription, type Step } from "./gateway.ts";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;
const STEP_KEYS = ["method", "path", "headers", "body", "read"];
const KEYS = [
  ...["name", "model", "inputMicros", "outputMicros", "microPerUnit", "completionsPath", "adminUrl", "readyPath"],
  ...["settleSeconds", "counting", "createKey", "topUp", "balance", "notes"],
];

/** Reads the description of a gateway from JSON. Throws BenchmarkError, which names the key, what was found and what is allowed. */
export function readDescription(text: string, file: string): GatewayDescription {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    throw new BenchmarkError(`${file} is not JSON: ${(error as Error).message}`);
  }
  const fields = new Fields(document, file, KEYS);
  const counting = fields.has("counting")
    ? new Fields(fields.get("counting"), `${file}: counting`, ["leastPercent", "mostPercent"])
    : undefined;
  return {
    name: fields.text("name"),
    model: fields.text("model", "overspend"),
    prices: { input: BigInt(fields.integer("inputMicros", 0)), output: BigInt(fields.integer("outputMicros", 1)) },
    microPerUnit: BigInt(fields.integer("microPerUnit", 1, 1_000_000)),
    completionsPath: fields.text("completionsPath", "/v1/chat/completions"),
    adminUrl: fields.has("adminUrl") ? fields.url("adminUrl") : undefined,
    readyPath: fields.text("readyPath", "/"),
    settleSeconds: fields.integer("settleSeconds", 0, 5),
    counting: {
      leastPercent: counting?.integer("leastPercent", 0, 100) ?? 100,
      mostPercent: counting?.integer("mostPercent", 100, 100) ?? 100,
    },
    createKey: fields.steps("createKey"),
    topUp: fields.has("topUp") ? fields.steps("topUp") : undefined,
    balance: fields.steps("balance"),
  };
}

class Fields {
  readonly #fields: Record<string, unknown>;
  readonly #place: string;

  constructor(value: unknown, place: string, allowed: readonly string[]) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new BenchmarkError(`${place} must be an object.`);
    }
    const unknown = Object.keys(value).find((key) => !allowed.includes(key));
    if (unknown !== undefined) {
      throw new BenchmarkError(`${place}: ${unknown} is not a known key. Known keys: ${allowed.join(", ")}.`);
    }
    this.#fields = value as Record<string, unknown>;
    this.#place = place;
  }

  has(key: string): boolean {
    return this.#fields[key] !== undefined;
  }

  get(key: string): unknown {
    return this.#fields[key];
  }

  text(key: string, fallback?: string): string {
    const value = this.#fields[key] ?? fallback;
    if (typeof value === "string" && value !== "") return value;
    throw new BenchmarkError(`${this.#place}: ${key} must be a text.`);
  }

  url(key: string): URL {
    const value = this.text(key);
    if (/^https?:/.test(value) && URL.canParse(value)) return new URL(value);
    throw new BenchmarkError(
      `${this.#place}: ${key} must be an address such as http://127.0.0.1:4002; found ${value}.`,
    );
  }

  integer(key: string, least: number, fallback?: number): number {
    const value = this.#fields[key] ?? fallback;
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= least) return value;
    throw new BenchmarkError(`${this.#place}: ${key} must be a whole number of at least ${least}.`);
  }

  texts(key: string): Record<string, string> {
    const value = this.#fields[key] ?? {};
    const isMap = typeof value === "object" && !Array.isArray(value);
    if (isMap && Object.values(value).every((item) => typeof item === "string")) return value as Record<string, string>;
    throw new BenchmarkError(`${this.#place}: ${key} must be an object of texts.`);
  }

  steps(key: string): Step[] {
    const value = this.#fields[key];
    if (!Array.isArray(value) || value.length === 0) {
      throw new BenchmarkError(`${this.#place}: ${key} must be a list of requests.`);
    }
    return value.map((item, index) => {
      const place = `${this.#place}: ${key}[${index}]`;
      const step = new Fields(item, place, STEP_KEYS);
      const method = METHODS.find((one) => one === step.text("method"));
      if (method === undefined) throw new BenchmarkError(`${place}: method must be one of ${METHODS.join(", ")}.`);
      const path = step.text("path");
      if (!path.startsWith("/")) throw new BenchmarkError(`${place}: path must begin with a slash; found ${path}.`);
      return {
        ...{ method, path, headers: step.texts("headers"), read: step.texts("read") },
        ...(step.has("body") && { body: step.get("body") }),
      };
    });
  }
}
