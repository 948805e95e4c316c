import type { Page, PageRequest } from "../admin/directory.ts";
import { inCamelCase } from "../api/names.ts";
import { isoTime, parseTime } from "../api/time.ts";
import { LINE, LINE_WORDS } from "../api/wording.ts";
import { creditsFromMicro, MICRO_CREDITS_MAX, type MicroCredits, parseCredits } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import type { Store } from "../stores/store.ts";
import { allPages, type Core, knownOrganization, stated } from "./core.ts";

/** Services of commands: an opened store, which a running service may use at the same time. */
export interface CommandServices extends Core {
  store: Store;
  /** Reads a balance after applying every grant that has taken effect or expired. Rejects if there is no such organization. */
  freshBalance(organizationId: string): Promise<BalanceRow>;
}

export type CommandFlags = Record<string, Flag<unknown>>;
export type ValuesOf<Own extends CommandFlags> = { [Name in keyof Own]: ReturnType<Own[Name]["read"]> };

/** A command. Its services are those of operations, or more. */
export interface OperationCommand<
  Own extends CommandFlags = CommandFlags,
  Input = unknown,
  Services = CommandServices,
> {
  /** Its words and arguments: `org create <name>`. */
  usage: string;
  /** Default: that of its operation. */
  summary?: string;
  /** Its arguments in their order, and its flags. They are read before the store is opened. */
  flags: Own;
  /** Checks and combines the values, also before the store is opened. Throws OperatorError. */
  input?: (values: ValuesOf<Own>, common: { json?: boolean }) => Input;
  /** True if it creates the store. Other commands change nothing in a wrong folder. */
  createsStore?: boolean;
  /** Returns what is printed, unless it has printed everything itself. */
  run(services: Services, input: Input): Promise<CommandOutput | undefined>;
}

/** Declares a command; its flags are the types of the values that it runs with. */
export function command<Own extends CommandFlags, Input = ValuesOf<Own>, Services = CommandServices>(
  declaration: OperationCommand<Own, Input, Services>,
): OperationCommand<CommandFlags, unknown, Services> {
  return declaration as unknown as OperationCommand<CommandFlags, unknown, Services>;
}

/** The input of a command's call, which may do everything. */
export interface CommandCall {
  params?: Readonly<Record<string, unknown>>;
  query?: object;
  body?: object;
  page?: PageRequest;
}

type CallingCommand<Own extends CommandFlags> = Pick<OperationCommand<Own>, "usage" | "summary" | "flags"> & {
  /** Default: the values are the parameters of the path, and the fields of the body or the query. Throws OperatorError. */
  call?(values: ValuesOf<Own>): CommandCall | Promise<CommandCall>;
};

interface AnswerCommand<Own extends CommandFlags, Answer> extends CallingCommand<Own> {
  /** Default: the answer, with the names of its fields in camel case. */
  json?(answer: Answer, values: ValuesOf<Own>): unknown;
  text(answer: Answer, values: ValuesOf<Own>): string;
}

interface ListCommand<Own extends CommandFlags, Entry> extends CallingCommand<Own> {
  /** Number of entries to print; all by default. */
  limit?: number;
  isOldestFirst?: boolean;
  json?(entry: Entry): object;
  columns: Columns<Entry>;
}

/** Makes the commands of an operation with this answer. */
export interface CommandMaker<Answer> {
  command<Own extends CommandFlags>(declaration: AnswerCommand<Own, Answer>): OperationCommand;
  list<Own extends CommandFlags>(
    declaration: ListCommand<Own, Answer extends Page<infer Entry> ? Entry : never>,
  ): OperationCommand;
}

export function commandMaker<Answer>(
  { route, body }: { route: string; body?: unknown },
  handle: (services: CommandServices, call: CommandCall) => Promise<Answer>,
): CommandMaker<Answer> {
  const inPath = [...route.matchAll(/:(\w+)/g)].map(([, name]) => name);
  const usualCall = (values: Record<string, unknown>): CommandCall => {
    const entries = Object.entries(values);
    const params = Object.fromEntries(entries.filter(([name]) => inPath.includes(name)));
    const others = Object.fromEntries(entries.filter(([name]) => !inPath.includes(name)));
    return body === undefined ? { params, query: stated(others) } : { params, body: others };
  };
  return {
    command: ({ call: callOf = usualCall, json = jsonOf, text, ...rest }) =>
      command({
        ...rest,
        input: (values) => ({ values, call: callOf(values) }),
        async run(services, { values, call }) {
          const answer = await handle(services, await call);
          return { json: json(answer, values), text: text(answer, values) };
        },
      }),
    list: ({ call: callOf = usualCall, limit, isOldestFirst = false, json = jsonOf, columns, ...rest }) =>
      command({
        ...rest,
        input: (values) => ({ values, call: callOf(values) }),
        async run(services, { values, call }) {
          const { organization_id: named = null, id = null } = values as Record<string, string | null>;
          await knownOrganization(services, route.includes("/organizations/:id") ? id : named);
          const read = async (page: PageRequest) => (await handle(services, { ...(await call), page })) as Page<never>;
          const entries = limit === undefined ? await allPages(read) : (await read({ cursor: null, limit })).data;
          if (isOldestFirst) entries.reverse();
          return { json: entries.map((entry) => json(entry)), text: tableOf(entries, columns) };
        },
      }),
  };
}

/** A flag (`--org <id>`) or an argument (`<id>`). */
export interface Flag<Value> {
  usage: string;
  description: string;
  isRequired?: boolean;
  byDefault?: string;
  /** Reads what was given, undefined if nothing was. Throws OperatorError. */
  read(given: unknown, nowMs: number): Value;
}

/** Reads a text. `name` is the flag or argument that an OperatorError names. */
type Parse<Value> = (text: string, name: string, nowMs: number) => Value;

function flag<Value>(usage: string, description: string, parse: Parse<Value>): Flag<Value> {
  const [word = ""] = usage.split(" ");
  const name = word.startsWith("-") ? word : word.slice(1, -1).toUpperCase();
  return { usage, description, read: (given, nowMs) => parse(String(given), name, nowMs) };
}

export const text: Parse<string> = (given) => given;

export function argument<Value>(usage: string, parse: Parse<Value>): Flag<Value> {
  return flag(usage, "", parse);
}

/** Declares a flag that has to be stated. */
export function required(usage: string, description: string): Flag<string> {
  return { ...flag(usage, description, text), isRequired: true };
}

/** Declares a flag or an argument that is null by default. */
export function optional<Value>(usage: string, description: string, parse: Parse<Value>): Flag<Value | null> {
  const { read, ...rest } = flag(usage, description, parse);
  return { ...rest, read: (given, nowMs) => (typeof given === "string" ? read(given, nowMs) : null) };
}

export function withDefault<Value>(usage: string, description: string, byDefault: string, parse: Parse<Value>) {
  return { ...flag(usage, description, parse), byDefault };
}

/** Declares a flag with several values; null by default. */
export function list(usage: string, description: string): Flag<string[] | null> {
  return { usage, description, read: (given) => (given as string[] | undefined) ?? null };
}

/** Declares a flag with values of the form KEY=VALUE; null by default. */
export function pairs(usage: string, description: string): Flag<[key: string, value: string][] | null> {
  const [name = ""] = usage.split(" ");
  const pairOf = (given: string): [string, string] => {
    const [, key, value] = /^([^=]{1,64})=(.{1,512})$/s.exec(given) ?? [];
    return key === undefined || value === undefined ? refuse(name, given.slice(0, 60), "KEY=VALUE") : [key, value];
  };
  return { usage, description, read: (given) => (Array.isArray(given) ? given.map(pairOf) : null) };
}

/** Declares a flag without a value; `--no-cap` is true if it was stated. */
export function toggle(usage: string, description: string): Flag<boolean> {
  const stated = !usage.startsWith("--no-");
  return { usage, description, read: (given) => given === stated };
}

/** Longest time for which a secret that was replaced stays valid: 30 days. */
export const OVERLAP_SECONDS_MAX = 2_592_000;
const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;
const DURATION = /^(\d{1,6})([smhdw])$/;
const DURATION_WORDS = "a number with s, m, h, d or w, such as 90m or 30d";
const DATE_WORDS = "a date as YYYY-MM-DD (from 00:00 UTC on), or a time such as 2030-01-31T18:00:00Z";

/** Parses an amount of credits. 0 is refused. */
export const credits = amountFrom(1n, "above 0");
/** Parses an amount of credits, which may be 0. */
export const creditsOrNone = amountFrom(0n, "0 or more");

function amountFrom(least: MicroCredits, leastWords: string) {
  return (text: string, name: string): number => {
    const amount = /[eE]/.test(text) ? undefined : parseCredits(text);
    if (amount === undefined || amount < least) {
      refuse(
        name,
        text,
        `a decimal number of credits, ${leastWords}, at most ${creditsFromMicro(MICRO_CREDITS_MAX)}, with at most 6 decimals`,
      );
    }
    const number = creditsFromMicro(amount);
    return parseCredits(String(number)) === amount ? number : refuse(name, text, "an amount with fewer digits");
  };
}

/** Returns a parser of an integer between two. */
export function integer(least: number, most: number): Parse<number> {
  return (text, name) => {
    const isWithin = /^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most;
    return isWithin ? Number(text) : refuse(name, text, `an integer from ${least} to ${most}`);
  };
}

/** Parses a switch. */
export function onOrOff(text: string, name: string): boolean {
  return text === "on" || (text === "off" ? false : refuse(name, text, "on or off"));
}

/** Returns a parser of one of some words. */
export function wordOf<const Word extends string>(words: readonly Word[]): Parse<Word> {
  const allowed = words.length === 2 ? words.join(" or ") : `one of: ${words.join(", ")}`;
  return (text, name) => words.find((word) => word === text) ?? refuse(name, text, allowed);
}

/** Checks a text of one line. */
export function line(text: string, name: string): string {
  return new RegExp(LINE, "u").test(text) ? text : refuse(name, text.slice(0, 60), LINE_WORDS);
}

/** Parses the time for which an old secret stays valid, such as `1h` or `0`. */
export function overlapSeconds(text: string, name: string): number {
  const durationMs = (text === "0" ? 0 : parseDuration(text)) ?? refuse(name, text, DURATION_WORDS);
  return durationMs <= OVERLAP_SECONDS_MAX * 1_000 ? durationMs / 1_000 : refuse(name, text, "at most 30d");
}

/** Parses a date or a time, past or future, into milliseconds since 1970. */
export function date(text: string, name: string): number {
  return parseTime(text) ?? refuse(name, text, DATE_WORDS);
}

/** Parses a date or a time in the future into the time that a request has. */
export function futureDate(text: string, name: string, nowMs: number): string {
  const timeMs = date(text, name);
  return timeMs > nowMs ? isoTime(timeMs) : refuse(name, text, "a time in the future");
}

/** Parses a date or a time in the future, or a duration from now on, into the time that a request has. */
export function expiry(text: string, name: string, nowMs: number): string {
  const durationMs = parseDuration(text);
  if (durationMs === undefined && parseTime(text) === undefined) {
    refuse(name, text, `${DURATION_WORDS}, or ${DATE_WORDS}`);
  }
  if (durationMs === 0) refuse(name, text, "a time in the future");
  return durationMs === undefined ? futureDate(text, name, nowMs) : isoTime(nowMs + durationMs);
}

function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  return unit === undefined ? undefined : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

function refuse(name: string, found: string, allowed: string): never {
  throw new OperatorError(`${name} is ${JSON.stringify(found)}, but must be ${allowed}.`);
}

/** Result of a command: one document for programs, a few lines for people. */
export interface CommandOutput {
  json: unknown;
  text: string;
}

/** Returns a resource of the admin API as commands print it: with the names of its fields in camel case. */
export function jsonOf(resource: unknown): Record<string, unknown> {
  const { object, ...fields } = resource as Record<string, unknown>;
  return inCamelCase(fields);
}

type Columns<Value> = Record<string, (value: Value) => unknown>;

/** Formats rows under their headings in columns; a column of numbers is aligned to the right. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const columns = headings.map((heading, index) => {
    const cells = rows.map((row) => row[index] ?? "");
    const isNumeric = cells.length > 0 && cells.every((cell) => /^-?[\d.]+$/.test(cell));
    return { width: Math.max(...[heading, ...cells].map((cell) => cell.length)), isNumeric };
  });
  const line = (cells: readonly string[]) =>
    columns
      .map(({ width, isNumeric }, index) => (cells[index] ?? "")[isNumeric ? "padStart" : "padEnd"](width))
      .join("  ")
      .trimEnd();
  return [headings, ...rows].map(line).join("\n");
}

/** Formats values as a table with these columns. */
export function tableOf<Value>(values: readonly Value[], columns: Columns<Value>): string {
  const cells = values.map((value) => Object.values(columns).map((cell) => String(cell(value) ?? "")));
  return table(Object.keys(columns), cells);
}

/** Formats names and values in two columns. */
export function facts(values: Record<string, string | number>): string {
  const width = Math.max(...Object.keys(values).map((name) => name.length));
  return Object.entries(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd())
    .join("\n");
}
