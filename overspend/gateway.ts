import { setTimeout as sleep } from "node:timers/promises";
import type { Counting } from "./judge.ts";
import { parseExactly, parseMicro, type TokenPrices, toUnits, valueAt } from "./money.ts";

/** An error of the benchmark's use or of the gateway's answers, with a message for the user. */
export class BenchmarkError extends Error {}

/** One HTTP request of a gateway's administration; `{name}` in a path, a header or a body is replaced by a variable. */
export interface Step {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  headers: Record<string, string>;
  body?: unknown;
  /** Variables to read from the answer, by path. */
  read: Record<string, string>;
}

/** Describes how to use a gateway: README.md, "Another gateway". */
export interface GatewayDescription {
  name: string;
  /** Model whose route leads to the benchmark's upstream. */
  model: string;
  prices: TokenPrices;
  counting: Counting;
  /** Micro-units that one unit of the gateway's amounts is worth. */
  microPerUnit: bigint;
  completionsPath: string;
  /** Address of the administration, if it is not the target. */
  adminUrl: URL | undefined;
  /** Path that answers once the gateway takes requests. */
  readyPath: string;
  /** Time for which charges must not have changed to be final. */
  settleSeconds: number;
  createKey: readonly Step[];
  topUp: readonly Step[] | undefined;
  balance: readonly Step[];
}

/** A holder of credits on the gateway, with its key. */
export interface Account {
  key: string;
  /** Everything granted so far. */
  granted: bigint;
  variables: Record<string, string>;
}

const SETTLE_LIMIT_MS = 90_000;
const SETTLE_INTERVAL_MS = 250;
const ADMIN_TIMEOUT_MS = 30_000;

/** A gateway under test, used by its description. */
export class Gateway {
  readonly description: GatewayDescription;
  readonly target: URL;
  readonly #adminToken: string;

  constructor(description: GatewayDescription, target: URL, adminToken: string) {
    this.description = description;
    this.target = target;
    this.#adminToken = adminToken;
  }

  /** Returns the same gateway with another description. */
  describedAs(description: GatewayDescription): Gateway {
    return new Gateway(description, this.target, this.#adminToken);
  }

  /** Creates a key with credits. */
  async createAccount(name: string, granted: bigint): Promise<Account> {
    const { createKey, microPerUnit } = this.description;
    const amount = toUnits(granted, microPerUnit);
    const amounts = { amount, amountText: amount, total: amount, totalText: amount };
    const variables = await this.#follow(createKey, { name, ...amounts });
    const { key } = variables;
    if (key === undefined) throw new BenchmarkError("createKey reads no variable `key`.");
    return { key, granted, variables };
  }

  /** Adds credits to an account; the gateway must have a way to top up. */
  async topUp(account: Account, amount: bigint): Promise<void> {
    const { topUp, microPerUnit } = this.description;
    if (topUp === undefined) throw new BenchmarkError(`${this.description.name} is described without topUp.`);
    const total = account.granted + amount;
    const [amountText, totalText] = [toUnits(amount, microPerUnit), toUnits(total, microPerUnit)];
    const amounts = { amount: amountText, amountText, total: totalText, totalText };
    account.granted = total;
    account.variables = await this.#follow(topUp, { ...account.variables, ...amounts });
  }

  /** Waits until nothing is held and the charges are final, and returns their sum. */
  async settledCharges(account: Account): Promise<bigint> {
    const { settleSeconds } = this.description;
    const startedMs = Date.now();
    let last: bigint | undefined;
    let sinceMs = startedMs;
    for (;;) {
      const { charged, held } = await this.#balanceOf(account);
      if (charged !== last || held > 0n) sinceMs = Date.now();
      last = charged;
      if (held === 0n && Date.now() - sinceMs >= settleSeconds * 1000) return charged;
      if (Date.now() - startedMs > settleSeconds * 1000 + SETTLE_LIMIT_MS) {
        throw new BenchmarkError(`The charges were not final in time: ${held} micro-units are still held.`);
      }
      await sleep(SETTLE_INTERVAL_MS);
    }
  }

  async #balanceOf(account: Account): Promise<{ charged: bigint; held: bigint }> {
    const read = await this.#follow(this.description.balance, account.variables);
    const amountOf = (name: string): bigint | undefined => {
      const text = read[name];
      if (text === undefined) return undefined;
      const amount = parseMicro(text, this.description.microPerUnit);
      if (amount === undefined) throw new BenchmarkError(`The balance's ${name} is no decimal number: ${text}.`);
      return amount;
    };
    const available = amountOf("available");
    const charged = amountOf("charged") ?? (available === undefined ? undefined : account.granted - available);
    if (charged === undefined) throw new BenchmarkError("balance reads neither `charged` nor `available`.");
    return { charged, held: amountOf("held") ?? 0n };
  }

  /** Sends the steps one after the other; returns the variables with those that the answers add. */
  async #follow(steps: readonly Step[], given: Record<string, string>): Promise<Record<string, string>> {
    const variables = { ...given };
    for (const step of steps) {
      const document = await this.send(step, variables);
      for (const [name, path] of Object.entries(step.read)) {
        const value = valueAt(document, fill(path, variables));
        if (typeof value !== "string") {
          throw new BenchmarkError(`${step.method} ${step.path}: the answer has no ${path}.`);
        }
        variables[name] = value;
      }
    }
    return variables;
  }

  /** Sends one step and returns its answer, with numbers as texts. Throws BenchmarkError if the answer is an error. */
  async send(step: Step, variables: Record<string, string>): Promise<unknown> {
    const all = { ...variables, adminToken: this.#adminToken };
    const headers = Object.entries(step.headers).map(([name, value]) => [name, fill(value, all)]);
    const path = fill(step.path, all, encodeURIComponent);
    const answer = await fetch(urlBelow(this.description.adminUrl ?? this.target, path), {
      method: step.method,
      redirect: "error",
      signal: AbortSignal.timeout(ADMIN_TIMEOUT_MS),
      headers: {
        ...Object.fromEntries(headers),
        ...(step.body !== undefined && { "content-type": "application/json" }),
      },
      ...(step.body !== undefined && { body: toJson(step.body, all) }),
    });
    const text = await answer.text();
    if (!answer.ok) {
      throw new BenchmarkError(`${step.method} ${step.path} was answered ${answer.status}: ${text.slice(0, 300)}`);
    }
    return text === "" ? undefined : parseExactly(text);
  }
}

/** Returns the address of a path below a base address. */
export function urlBelow(base: URL, path: string): URL {
  return new URL(base.href.replace(/\/$/, "") + path);
}

function fill(text: string, variables: Record<string, string>, encode = (value: string) => value): string {
  return text.replace(/\{(\w+)\}/g, (_whole, name: string) => {
    const value = variables[name];
    if (value === undefined) throw new BenchmarkError(`There is no variable {${name}}.`);
    return encode(value);
  });
}

/** A whole text `{amount}` or `{total}` becomes a number with exactly these digits. */
const AMOUNT = /^\{(amount|total)\}$/;

function toJson(value: unknown, variables: Record<string, string>): string {
  if (typeof value === "string") {
    const filled = fill(value, variables);
    return AMOUNT.test(value) ? filled : JSON.stringify(filled);
  }
  if (Array.isArray(value)) return `[${value.map((item) => toJson(item, variables)).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${toJson(item, variables)}`);
  return `{${fields.join(",")}}`;
}
