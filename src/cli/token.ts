import type { Command } from "commander";
import type { RotateOutcome } from "../admin/accounts.ts";
import { SCOPES } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import type { TokenRow, TokenWithBudget } from "../stores/queries/accounts.ts";
import {
  addCommand,
  type CommonFlags,
  creditsFlag,
  durationFlag,
  expiryFlag,
  facts,
  print,
  type Terminal,
  table,
  UnknownIdError,
} from "./command.ts";
import { organizationFlag, unknownOrganization, withWorkspace } from "./workspace.ts";

interface TermFlags extends CommonFlags {
  name: string;
  scope?: string[];
  model?: string[];
  expires?: string;
  cap?: string;
}
type CreateFlags = TermFlags & { org: string };
interface UpdateFlags extends Omit<TermFlags, "name" | "expires" | "cap"> {
  name?: string;
  allModels?: boolean;
  /** False: `--no-expires`, `--no-cap`. */
  expires?: string | false;
  cap?: string | false;
}
type ListFlags = CommonFlags & { org?: string };
type RotateFlags = CommonFlags & { overlap: string; replace?: boolean };

export function addToken(program: Command, terminal: Terminal): void {
  const token = program.command("token").description("access tokens of an organization");
  addCommand(token, "create", "Create an access token, shown once")
    .requiredOption("--org <id>", "organization that the token belongs to")
    .option("--name <name>", "name that identifies it", "unnamed")
    .option("--scope <scope...>", `permissions: ${SCOPES.join(", ")} (default: all but console:read)`)
    .option("--model <id...>", "models that it can call (default: all)")
    .option("--expires <when>", "expiry: 30d, 12h, or a date (default: never)")
    .option("--cap <credits>", "spending cap in credits (default: none)")
    .action((flags: CreateFlags) => create(terminal, flags));
  addCommand(token, "update <id>", "Change an access token; terms without a flag stay as they are")
    .option("--name <name>", "name that identifies it")
    .option("--scope <scope...>", `permissions, in place of the present ones: ${SCOPES.join(", ")}`)
    .option("--model <id...>", "models that it can call, in place of the present ones")
    .option("--all-models", "let it call every model")
    .option("--expires <when>", "expiry: 30d, 12h from now, or a date")
    .option("--no-expires", "let it never expire")
    .option("--cap <credits>", "spending cap in credits; counts all that it has spent")
    .option("--no-cap", "remove its spending cap")
    .action((id: string, flags: UpdateFlags) => update(terminal, id, flags));
  addCommand(token, "list", "List the access tokens, the oldest first, without their secrets")
    .option("--org <id>", "only those of this organization")
    .action((flags: ListFlags) => list(terminal, flags));
  addCommand(
    token,
    "revoke <id>",
    "Revoke an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  ).action((id: string, flags: CommonFlags) => revoke(terminal, id, flags));
  addCommand(token, "rotate <id>", "Replace an access token with a new one of the same permissions and lifetime")
    .option("--overlap <duration>", "time for which the old token keeps working; 0 to end it immediately", "1h")
    .option("--replace", "if its successor was never used, revoke that token and create another")
    .action((id: string, flags: RotateFlags) => rotate(terminal, id, flags));
}

async function create(terminal: Terminal, flags: CreateFlags): Promise<void> {
  const cap = flags.cap === undefined ? null : creditsFlag("--cap", flags.cap, { orNone: true });
  const expiresAtMs = flags.expires === undefined ? null : expiryFlag("--expires", flags.expires, terminal.clock());
  await withWorkspace(terminal, flags, async ({ accounts }) => {
    const { org: organizationId, name, scope: scopes = null, model: models = null } = flags;
    const made = await accounts.createToken({ organizationId, name, scopes, models, limits: null, expiresAtMs, cap });
    if (made.outcome === "unknown_organization") throw unknownOrganization(organizationId);
    const { token } = made;
    const { id, scopes: granted } = made.row;
    const expiresAt = isoTime(expiresAtMs);
    print(terminal, flags, {
      json: { id, token, scopes: granted, expiresAt, ...(cap !== null && { cap: creditsFromMicro(cap) }) },
      text: facts({
        id,
        token,
        scopes: granted.join(", "),
        expires: expiresAt ?? "never",
        ...(cap !== null && { cap: `${formatCredits(cap)} credits` }),
      }),
    });
  });
}

async function update(terminal: Terminal, id: string, flags: UpdateFlags): Promise<void> {
  const { name, scope, model, allModels = false, expires, cap } = flags;
  if (allModels && model !== undefined) throw new OperatorError("--model and --all-models exclude each other.");
  const change = {
    ...(name !== undefined && { name }),
    ...(scope !== undefined && { scopes: scope }),
    ...(model !== undefined && { models: model }),
    ...(allModels && { models: null }),
    ...(expires !== undefined && {
      expiresAtMs: expires === false ? null : expiryFlag("--expires", expires, terminal.clock()),
    }),
    ...(cap !== undefined && { cap: cap === false ? null : creditsFlag("--cap", cap, { orNone: true }) }),
  };
  if (Object.keys(change).length === 0) throw new OperatorError("Nothing to change: name at least one term.");
  await withWorkspace(terminal, flags, async ({ accounts }) => {
    const changed = await accounts.changeToken(id, change);
    if (changed.outcome === "unknown_token") throw unknownToken(id);
    if (changed.outcome === "ended") throw endedToken(id, "changed", changed.row);
    const json = reportOf(changed.row);
    const text = facts({
      id,
      name: json.name,
      scopes: json.scopes.join(", "),
      models: json.models?.join(", ") ?? "all",
      expires: json.expiresAt ?? "never",
      cap: capText(json),
    });
    print(terminal, flags, { json, text });
  });
}

function reportOf(row: TokenWithBudget) {
  return {
    id: row.id,
    organizationId: row.organizationId,
    name: row.name,
    prefix: row.prefix,
    scopes: row.scopes,
    models: row.models,
    createdAt: isoTime(row.createdAtMs),
    expiresAt: isoTime(row.expiresAtMs),
    revokedAt: isoTime(row.revokedAtMs),
    successorId: row.successorId,
    cap: row.budget && creditsFromMicro(row.budget.cap),
    creditsHeld: row.budget && creditsFromMicro(row.budget.held),
    creditsUsed: row.budget && creditsFromMicro(row.budget.spent),
  };
}

function capText({ cap, creditsUsed, creditsHeld }: ReturnType<typeof reportOf>): string {
  return cap === null ? "-" : `${creditsUsed} of ${cap}, ${creditsHeld} held`;
}

async function list(terminal: Terminal, flags: ListFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ accounts }) => {
    const organizationId = await organizationFlag(accounts, flags.org);
    const json = (await accounts.tokens(organizationId)).map(reportOf);
    const rows = json.map((row) => [
      row.id,
      row.organizationId,
      row.name,
      `${row.prefix}…`,
      row.revokedAt === null ? (row.expiresAt ?? "never") : `revoked ${row.revokedAt}`,
      capText(row),
      row.scopes.join(" "),
    ]);
    const text = table(["ID", "ORGANIZATION", "NAME", "TOKEN", "EXPIRES", "CAP", "SCOPES"], rows);
    print(terminal, flags, { json, text });
  });
}

async function revoke(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ accounts }) => {
    const ended = await accounts.revokeToken(id);
    if (ended.outcome === "unknown_token") throw unknownToken(id);
    const revokedAt = isoTime(ended.row.revokedAtMs);
    print(terminal, flags, {
      json: { id, revokedAt, repeated: ended.repeated },
      text: ended.repeated ? `${id} was revoked before, at ${revokedAt}.` : `${id} is revoked.`,
    });
  });
}

async function rotate(terminal: Terminal, id: string, flags: RotateFlags): Promise<void> {
  const overlapMs = durationFlag("--overlap", flags.overlap);
  await withWorkspace(terminal, flags, async ({ accounts }) => {
    const rotated = await accounts.rotateToken(id, overlapMs, flags);
    if (rotated.outcome !== "rotated") throw rotationRefused(id, rotated);
    const { row, token, predecessor } = rotated;
    const expiresAt = isoTime(row.expiresAtMs);
    const oldExpiresAt = isoTime(predecessor.expiresAtMs);
    print(terminal, flags, {
      json: { id: row.id, token, scopes: row.scopes, expiresAt, replaces: { id, expiresAt: oldExpiresAt } },
      text: facts({
        id: row.id,
        token,
        scopes: row.scopes.join(", "),
        expires: expiresAt ?? "never",
        replaces: `${id}, which works until ${oldExpiresAt}`,
      }),
    });
  });
}

function rotationRefused(id: string, refusal: Exclude<RotateOutcome, { outcome: "rotated" }>): OperatorError {
  if (refusal.outcome === "unknown_token") return unknownToken(id);
  if (refusal.outcome === "ended") return endedToken(id, "rotated", refusal.row);
  const { successorId, isUsed } = refusal;
  const hint = isUsed
    ? "That token was used; rotate it instead."
    : "That token was never used; add --replace to create another in its place.";
  return new OperatorError(`The token ${id} was already rotated; its successor is ${successorId}. ${hint}`);
}

function endedToken(id: string, change: string, { revokedAtMs, expiresAtMs }: TokenRow): OperatorError {
  const end = revokedAtMs === null ? `expired at ${isoTime(expiresAtMs)}` : `was revoked at ${isoTime(revokedAtMs)}`;
  return new OperatorError(`The token ${id} cannot be ${change}: it ${end}.`);
}

function unknownToken(id: string): OperatorError {
  return new UnknownIdError("token", id, "token list");
}
