import { LRUCache } from "lru-cache";
import { SHORT_TOKEN_SCOPES } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import type { TokenRow } from "../stores/queries/accounts.ts";
import type { Store } from "../stores/store.ts";
import { type Actor, type AuditTime, auditRow } from "./audit.ts";
import type { SessionReference } from "./sessions.ts";
import { idOfSession, makeToken, makeTokenRow, type RandomBytes } from "./token.ts";

/** The caller for whom a short token is created. It ends with their session, and with the operator or the person behind it. */
export interface ShortTokenHolder {
  actor: Actor;
  session: SessionReference | null;
  operatorId: string | null;
}

interface ShortToken {
  token: string;
  organizationId: string;
  expiresAtMs: number;
}

const LIFE_MS = 15 * 60_000;
/** A token with less time left is not issued again. */
const GOOD_FROM_MS = 7 * 60_000;
const KEPT_MAX = 10_000;
const NEVER_MS = Number.POSITIVE_INFINITY;

export type ShortTokens = ReturnType<typeof shortTokensOver>;

/** Tokens for the playground, which live for minutes with the rights of another token, and end with it and with the session. */
export function shortTokensOver({
  rows,
  accounts,
  random,
  ...time
}: AuditTime & { rows: Store["admin"]; accounts: Store["accounts"]; random: RandomBytes }) {
  const known = new LRUCache<string, ShortToken>({ max: KEPT_MAX });
  return {
    /** Creates a short token that represents this one, or returns one that was issued recently. */
    async issueFor({ id, organizationId, expiresAtMs }: TokenRow, holder: ShortTokenHolder): Promise<ShortToken> {
      const { actor, session, operatorId } = holder;
      const nowMs = time.clock();
      const key = [id, session && idOfSession(session), operatorId].join(" ");
      const issued = known.get(key);
      if (issued !== undefined && issued.expiresAtMs - nowMs >= GOOD_FROM_MS && issued.expiresAtMs <= nowMs + LIFE_MS) {
        return issued;
      }
      const { token, hash, prefix } = makeToken(random);
      const endsAtMs = Math.min(nowMs + LIFE_MS, expiresAtMs ?? NEVER_MS, session?.expiresAtMs ?? NEVER_MS);
      const after = { prefix, expiresAt: isoTime(endsAtMs) };
      const change = { action: "playground_token.create", organizationId, subjectId: id, after };
      const row = { hash, tokenId: id, expiresAtMs: endsAtMs, sessionHash: session?.hash ?? null, operatorId };
      await rows.insertShortToken(row, nowMs, auditRow(actor, change, time));
      const short = { token, organizationId, expiresAtMs: endsAtMs };
      known.set(key, short);
      return short;
    },
    /** Returns the token that the console's playground charges, made at its first use; undefined for an unknown organization. */
    async consoleToken(organizationId: string, actor: Actor): Promise<TokenRow | undefined> {
      const id = `tok_console_${organizationId.replace(/^org_/, "")}`;
      const found = await accounts.token(id);
      if (found !== undefined || (await accounts.organization(organizationId)) === undefined) return found;
      const name = "Console playground";
      const scopes = [...SHORT_TOKEN_SCOPES];
      const fields = { organizationId, name, scopes, createdAtMs: time.clock(), expiresAtMs: null };
      const { row } = makeTokenRow(random, { ...fields, models: null, limits: null }, id);
      const after = { name, prefix: row.prefix, scopes };
      const change = { action: "token.create", organizationId, subjectId: id, after };
      try {
        await accounts.insertToken(row, null, auditRow(actor, change, time));
        return row;
      } catch (error) {
        // Another node may have created it meanwhile.
        const made = await accounts.token(id);
        if (made === undefined) throw error;
        return made;
      }
    },
  };
}
