import { makeTokenRow, type NewSecret } from "../admin/token.ts";
import { isoTime } from "../api/time.ts";
import { ApiError } from "../errors.ts";
import type { TokenRow, TokenWithBudget } from "../stores/queries/accounts.ts";
import { argument, facts, OVERLAP_SECONDS_MAX, overlapSeconds, text, toggle, withDefault } from "./command.ts";
import { type AccountCore, found, invalidValue, rowRecord } from "./core.ts";
import { sharedOperation } from "./operation.ts";
import { boundsOf, boundTerms, least, type OwnBounds, requireToken } from "./token-bounds.ts";
import { expectActive, requireSecret, SECRET, secretJson, tokenRow, tokenText } from "./token-terms.ts";

const OVERLAP_SECONDS = 3600;

export const rotateToken = sharedOperation({
  route: "POST /tokens/:id/rotate",
  permission: "tokens:write",
  summary: "Replace an access token with a new one of the same permissions and lifetime",
  body: (s) =>
    s.Strict({
      overlap_seconds: s.Type.Optional(
        s.Type.Integer({
          minimum: 0,
          maximum: OVERLAP_SECONDS_MAX,
          default: OVERLAP_SECONDS,
          description: "Time for which the old token remains valid.",
        }),
      ),
      replace: s.Type.Optional(
        s.Type.Boolean({
          default: false,
          description: "True to replace an unused successor with a new one with a new secret.",
        }),
      ),
    }),
  answer: {
    status: 201,
    description: "The new token with its secret, and the old one.",
    schema: (s) => s.RotatedToken,
    secret: SECRET,
  },
  async handle(core, { who, params: { id }, body: { overlap_seconds = OVERLAP_SECONDS, replace = false } }) {
    requireToken(who, await tokenRow(core, id), "changed");
    const { row, token } = await replaceToken(core, id, overlap_seconds * 1000, replace, await boundsOf(core, who));
    const [made, replaces] = await Promise.all([found(core.directory.token(row.id)), found(core.directory.token(id))]);
    return { ...made, secret: token, replaces };
  },
  commands: (make) => [
    make.command({
      usage: "token rotate <id>",
      flags: {
        id: argument("<id>", text),
        overlap_seconds: withDefault(
          "--overlap <duration>",
          "time for which the old token keeps working, at most 30d; 0 to end it immediately",
          "1h",
          overlapSeconds,
        ),
        replace: toggle("--replace", "if its successor was never used, revoke that token and create another"),
      },
      json: ({ replaces: { id, expires_at: expiresAt }, ...token }) => ({
        ...secretJson(token),
        replaces: { id, expiresAt },
      }),
      text: ({ replaces, ...token }) => {
        const end = facts({ replaces: `${replaces.id}, which works until ${replaces.expires_at}` });
        return `${tokenText(token)}\n${end}`;
      },
    }),
  ],
});

/**
 * Creates a token with the terms of another, which ends after `overlapMs` at the latest. A token is rotated once; with `replace`,
 * a successor that was never used is made again. Rejects with ApiError.
 */
export async function replaceToken(
  core: AccountCore,
  id: string,
  overlapMs: number,
  replace = false,
  bounds: OwnBounds | null = null,
): Promise<NewSecret> {
  const old = await tokenRow(core, id);
  requireSecret(old, "it has no secret to rotate");
  const successor = old.successorId === null ? undefined : await core.accounts.token(old.successorId);
  if (successor === undefined) expectActive(core, old, "rotated");
  else {
    const isUsed = successor.lastUsedAtMs !== null || successor.successorId !== null;
    if (!replace || isUsed) throw alreadyRotated(id, successor.id, isUsed);
    // One that had ended would let a bounded caller have more tokens than allowed.
    if (bounds !== null) expectActive(core, successor, "replaced");
  }
  // Without a result, one of the tokens was rotated, revoked or used meanwhile: report that.
  return (await rotate(core, old, successor, overlapMs, bounds)) ?? replaceToken(core, id, overlapMs, false, bounds);
}

/** Returns undefined if one of the tokens has changed since it was read. */
async function rotate(
  core: AccountCore,
  old: TokenWithBudget,
  unused: TokenRow | undefined,
  overlapMs: number,
  bounds: OwnBounds | null,
): Promise<NewSecret | undefined> {
  const nowMs = core.clock();
  const { createdAtMs, expiresAtMs } = unused ?? old;
  const endsAtMs = expiresAtMs === null ? null : nowMs + expiresAtMs - createdAtMs;
  // The new secret is known to the person who rotates, and must not outlive them.
  const origin = { createdAtMs: nowMs, rotatedBy: core.actor.id };
  const terms = bounds === null ? { expiresAtMs: endsAtMs } : boundedSuccessor(bounds, old, endsAtMs);
  const made = makeTokenRow(core.random, { ...old, ...terms, ...origin });
  const overlapEndsAtMs = unused === undefined ? nowMs + overlapMs : Number.POSITIVE_INFINITY;
  const oldExpiresAtMs = Math.min(old.expiresAtMs ?? Number.POSITIVE_INFINITY, overlapEndsAtMs);
  const after = { successor: made.row.id, expiresAt: isoTime(oldExpiresAtMs) };
  const before = { successor: old.successorId, expiresAt: isoTime(old.expiresAtMs) };
  const record = rowRecord(core, "token.rotate", old, { before, after });
  const succession = { oldId: old.id, oldExpiresAtMs, successor: made.row, unused };
  return (await core.accounts.replaceToken(succession, record)) ? made : undefined;
}

/** Returns the terms of a successor. Its cap is that of the token, so it has to be within the bounds already. */
function boundedSuccessor(bounds: OwnBounds, old: TokenWithBudget, endsAtMs: number | null) {
  const present = old.budget?.cap ?? null;
  const { cap, ...terms } = boundTerms(
    bounds,
    { expiresAtMs: least(endsAtMs, bounds.expiresAtMs) },
    { ...old, cap: present },
  );
  if (cap === present) return terms;
  throw invalidValue("cap", "absent", "set: your organization has a highest cap. Change the token first");
}

function alreadyRotated(id: string, successorId: string, isUsed: boolean): ApiError {
  const hint = isUsed
    ? "used; rotate it instead."
    : "never used; send `replace: true` (--replace) to create another in its place.";
  const message = `The token ${id} was already rotated; its successor is ${successorId}. That token was ${hint}`;
  return new ApiError("already_rotated", message, { fields: { successor_id: successorId } });
}
