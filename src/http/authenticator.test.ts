import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { makeToken, tokenHashHex } from "../admin/token.ts";
import { ApiError, StoreUnavailableError } from "../errors.ts";
import type { TokenWithOrganization } from "../stores/queries/accounts.ts";
import { Authenticator } from "./authenticator.ts";

/** A store of one token that counts look-ups and answers when it is told to. */
function setUp(changes: Partial<TokenWithOrganization> = {}) {
  const { token, hash, prefix } = makeToken(randomBytes);
  const row: TokenWithOrganization = {
    id: "tok_1",
    organizationId: "org_1",
    organizationKind: "standard",
    organizationStatus: "active",
    organizationLimits: null,
    organizationKeepsConversations: false,
    name: "",
    hash,
    prefix,
    scopes: ["models:read"],
    models: null,
    limits: null,
    createdAtMs: 0,
    expiresAtMs: null,
    revokedAtMs: null,
    lastUsedAtMs: null,
    successorId: null,
    ...changes,
  };
  const uses: [string, number][] = [];
  const state = { nowMs: 1_000_000, lookups: 0, down: false, row: row as TokenWithOrganization | undefined };
  const rows = {
    async tokenByHash(asked: Uint8Array) {
      state.lookups += 1;
      const found = state.row;
      await new Promise((resolve) => setImmediate(resolve));
      if (state.down) throw new StoreUnavailableError("down");
      return found !== undefined && Buffer.from(asked).equals(found.hash) ? { ...found } : undefined;
    },
  };
  const noteUse = (tokenId: string, atMs: number) => uses.push([tokenId, atMs]);
  return { token, state, uses, authenticator: new Authenticator({ rows, clock: () => state.nowMs, noteUse }) };
}
const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
const codeOf = async (answer: () => unknown) => {
  try {
    await answer();
  } catch (error) {
    return error instanceof ApiError ? error.code : error;
  }
  return "admitted";
};

describe("look-ups", () => {
  test("a hundred at once ask the store once", async () => {
    const { token, state, authenticator } = setUp();
    const principals = await Promise.all(
      Array.from({ length: 100 }, () => authenticator.authenticate(tokenHashHex(token))),
    );
    expect(state.lookups).toBe(1);
    expect(principals[99]).toEqual({
      tokenId: "tok_1",
      organizationId: "org_1",
      organizationLimits: null,
      keepsConversations: false,
      organizationKind: "standard",
      scopes: new Set(["models:read"]),
      models: null,
      limits: null,
    });
  });

  test("a hundred thousand random or mistyped tokens never reach the store", async () => {
    const { token, state, authenticator } = setUp();
    const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const refused = { count: 0 };
    const bytes = randomBytes(100_000 * 50);
    for (let round = 0; round < 100_000; round += 1) {
      const letter = (place: number) => alphabet[(bytes[round * 50 + place] ?? 0) % 62] ?? "0";
      const place = 6 + (round % 49);
      const text =
        round % 2 === 0
          ? `sk-tg-${Array.from({ length: 49 }, (_, index) => letter(index)).join("")}`
          : token.slice(0, place) + (letter(0) === token[place] ? "-" : letter(0)) + token.slice(place + 1);
      try {
        authenticator.authenticate(tokenHashHex(text));
      } catch (error) {
        if (error instanceof ApiError && error.code === "invalid_token") refused.count += 1;
      }
    }
    expect(refused.count).toBe(100_000);
    expect(state.lookups).toBe(0);
  });

  test("a known token is told at once, and looked up again in the background from half its time on", async () => {
    const { token, state, authenticator } = setUp();
    const first = await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += 449;
    expect(authenticator.authenticate(tokenHashHex(token))).toBe(first);
    expect(state.lookups).toBe(1);
    for (let round = 2; round < 20; round += 1) {
      state.nowMs += round === 2 ? 1 : 450;
      expect(authenticator.authenticate(tokenHashHex(token))).not.toBeInstanceOf(Promise);
      expect(authenticator.authenticate(tokenHashHex(token))).not.toBeInstanceOf(Promise);
      await settled();
      expect(state.lookups).toBe(round);
    }
  });

  test("a token that rested for 900 ms waits for the store", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += 900;
    expect(authenticator.authenticate(tokenHashHex(token))).toBeInstanceOf(Promise);
    expect(state.lookups).toBe(2);
  });

  test("an unknown token is not asked for again and again, and works within a second of being made", async () => {
    const { token, state, authenticator } = setUp();
    const { row } = state;
    state.row = undefined;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
    state.row = row;
    state.nowMs += 899;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
    expect(state.lookups).toBe(1);
    state.nowMs += 1;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
  });
});

describe("what ends a token", () => {
  test.each([0, 449, 450, 899])("revoked %i ms after the look-up, it is refused within a second", async (atMs) => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += atMs;
    if (state.row !== undefined) state.row.revokedAtMs = state.nowMs;
    await codeOf(() => authenticator.authenticate(tokenHashHex(token)));
    state.nowMs += 1000;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
  });

  test("in steady use, a revocation is in force at the next background look-up", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    if (state.row !== undefined) state.row.revokedAtMs = state.nowMs;
    const codes = new Map<number, unknown>();
    for (let ms = 100; ms <= 1000; ms += 100) {
      state.nowMs += 100;
      codes.set(ms, await codeOf(() => authenticator.authenticate(tokenHashHex(token))));
      await settled();
    }
    expect(codes.get(500)).toBe("admitted");
    expect(codes.get(600)).toBe("invalid_token");
    expect(codes.get(1000)).toBe("invalid_token");
  });

  test("expiry is tested at each use", async () => {
    const { token, state, authenticator } = setUp({ expiresAtMs: 1_000_100 });
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs = 1_000_099;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
    state.nowMs = 1_000_100;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("expired_token");
    expect(state.lookups).toBe(1);
  });

  test("a revoked token that has expired too is an invalid one", async () => {
    const { token, authenticator } = setUp({ expiresAtMs: 1, revokedAtMs: 1 });
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
  });

  test("a clock that is set back keeps no entry alive", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs -= 3_600_000;
    expect(authenticator.authenticate(tokenHashHex(token))).toBeInstanceOf(Promise);
  });
});

describe("a store that is down", () => {
  test("is told as such, never as a refused token", async () => {
    const { token, state, authenticator } = setUp();
    state.down = true;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBeInstanceOf(StoreUnavailableError);
    state.down = false;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
  });

  test("leaves a known token its 900 ms", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.down = true;
    state.nowMs += 899;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
    await settled();
    state.nowMs += 1;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBeInstanceOf(StoreUnavailableError);
  });
});
