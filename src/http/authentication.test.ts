import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { makeToken, tokenHashHex } from "../admin/token.ts";
import { ApiError, StoreUnavailableError } from "../errors.ts";
import type { OrganizationRow, TokenWithOrganization } from "../stores/queries/accounts.ts";
import { Authenticator } from "./authentication.ts";

const ORGANIZATION: OrganizationRow = {
  ...{ id: "org_1", name: "", kind: "standard", status: "active", limits: null, createdAtMs: 0 },
  ...{ keepsConversations: false, keepsResponses: true, pausesAllowances: false, tokenBounds: null, models: null },
  ...{ aliases: null, priceList: null, externalId: null, contacts: null, note: null, erasedAtMs: null },
};

/** A store with one token that counts reads of it and of the version of the accounts. */
function setUp(changes: Partial<TokenWithOrganization> = {}) {
  const { token, hash, prefix } = makeToken(randomBytes);
  const row: TokenWithOrganization = {
    id: "tok_1",
    organizationId: "org_1",
    organization: ORGANIZATION,
    isCreatorBlocked: false,
    limitingBudgets: [],
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
    kind: "secret",
    createdBy: null,
    rotatedBy: null,
    pinned: null,
    callerId: "tok_first",
    ...changes,
  };
  const uses: [string, number, boolean][] = [];
  const state = {
    nowMs: 1_000_000,
    version: 0,
    versionReads: 0,
    lookups: 0,
    down: false,
    row: row as TokenWithOrganization | undefined,
    change(fields: Partial<TokenWithOrganization>) {
      if (state.row !== undefined) Object.assign(state.row, fields);
      state.version += 1;
    },
  };
  const rows = {
    async accountVersion() {
      state.versionReads += 1;
      const { version } = state;
      await new Promise((resolve) => setImmediate(resolve));
      if (state.down) throw new StoreUnavailableError("down");
      return version;
    },
    async tokenByHash(asked: Uint8Array) {
      state.lookups += 1;
      const found = state.row;
      await new Promise((resolve) => setImmediate(resolve));
      if (state.down) throw new StoreUnavailableError("down");
      return found !== undefined && Buffer.from(asked).equals(found.hash) ? { ...found } : undefined;
    },
  };
  const noteUse = (...use: [string, number, boolean]) => uses.push(use);
  return {
    token,
    state,
    uses,
    authenticator: new Authenticator({ rows, clock: () => state.nowMs, noteUse, givesAccess: () => true }),
  };
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

describe("Lookups", () => {
  test("A hundred concurrent uses of a token need one read of the version and one lookup.", async () => {
    const { token, state, authenticator } = setUp();
    const principals = await Promise.all(
      Array.from({ length: 100 }, () => authenticator.authenticate(tokenHashHex(token))),
    );
    expect([state.versionReads, state.lookups]).toEqual([1, 1]);
    expect(principals[99]).toEqual({
      tokenId: "tok_1",
      callerId: "tok_first",
      organizationId: "org_1",
      organizationLimits: null,
      organizationModels: null,
      aliases: null,
      priceList: null,
      limitingBudgets: [],
      keepsConversations: false,
      keepsResponses: true,
      organizationKind: "standard",
      scopes: new Set(["models:read"]),
      models: null,
      limits: null,
      pins: null,
    });
  });

  test("A hundred thousand random or mistyped tokens never reach the store.", async () => {
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

  test("A cached token is authenticated synchronously; two reads of the version a second are made in the background.", async () => {
    const { token, state, authenticator } = setUp();
    const first = await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += 449;
    expect(authenticator.authenticate(tokenHashHex(token))).toBe(first);
    expect(state.versionReads).toBe(1);
    for (let round = 2; round < 20; round += 1) {
      state.nowMs += round === 2 ? 1 : 450;
      expect(authenticator.authenticate(tokenHashHex(token))).toBe(first);
      expect(authenticator.authenticate(tokenHashHex(token))).toBe(first);
      await settled();
      expect(state.versionReads).toBe(round);
    }
    expect(state.lookups).toBe(1);
  });

  test("After 900 ms without a use, a token waits for the version, and is only looked up again if it changed.", async () => {
    const { token, state, authenticator } = setUp();
    const first = await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += 900;
    expect(authenticator.authenticate(tokenHashHex(token))).toBeInstanceOf(Promise);
    expect(await authenticator.authenticate(tokenHashHex(token))).toBe(first);
    expect([state.versionReads, state.lookups]).toEqual([2, 1]);
    state.change({ models: ["echo"] });
    state.nowMs += 900;
    expect(await authenticator.authenticate(tokenHashHex(token))).toMatchObject({ models: new Set(["echo"]) });
    expect([state.versionReads, state.lookups]).toEqual([3, 2]);
  });

  test("A change while a token is looked up is not missed.", async () => {
    const { token, state, authenticator } = setUp();
    const first = authenticator.authenticate(tokenHashHex(token));
    // The version is read, the token is not: it is read with the change, and outdated by the next version.
    await new Promise((resolve) => setImmediate(resolve));
    state.change({ limits: { requestsPerMinute: 7 } });
    await first;
    state.change({ limits: { requestsPerMinute: 8 } });
    state.nowMs += 900;
    const later = await authenticator.authenticate(tokenHashHex(token));
    expect(later.limits).toEqual({ requestsPerMinute: 8 });
  });

  test("Each use is noted, the first one as such.", async () => {
    const { token, uses, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs += 10;
    await authenticator.authenticate(tokenHashHex(token));
    expect(uses).toEqual([
      ["tok_1", 1_000_000, true],
      ["tok_1", 1_000_010, false],
    ]);
  });

  test("An unknown token is not looked up again at once, and works within a second of its creation.", async () => {
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

describe("Revocation and expiry", () => {
  test.each([0, 449, 450, 899])(
    "A token that is revoked %i ms after its lookup is rejected within a second.",
    async (atMs) => {
      const { token, state, authenticator } = setUp();
      await authenticator.authenticate(tokenHashHex(token));
      state.nowMs += atMs;
      state.change({ revokedAtMs: state.nowMs });
      await codeOf(() => authenticator.authenticate(tokenHashHex(token)));
      state.nowMs += 1000;
      expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
    },
  );

  test("In steady use, a revocation takes effect after the next background read.", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.change({ revokedAtMs: state.nowMs });
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

  test("The expiry is checked at each use.", async () => {
    const { token, state, authenticator } = setUp({ expiresAtMs: 1_000_100 });
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs = 1_000_099;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
    state.nowMs = 1_000_100;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("expired_token");
    expect(state.lookups).toBe(1);
  });

  test("A token that is both revoked and expired is invalid.", async () => {
    const { token, authenticator } = setUp({ expiresAtMs: 1, revokedAtMs: 1 });
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("invalid_token");
  });

  test("A clock that is set back does not extend the lifetime of an entry.", async () => {
    const { token, state, authenticator } = setUp();
    await authenticator.authenticate(tokenHashHex(token));
    state.nowMs -= 3_600_000;
    expect(authenticator.authenticate(tokenHashHex(token))).toBeInstanceOf(Promise);
  });
});

test.each(["paused", "closed"] as const)(
  "A token of a %s organization is refused, by the code of both.",
  async (status) => {
    const { authenticator, token } = setUp({ organization: { ...ORGANIZATION, status } });
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("organization_paused");
  },
);

describe("An unavailable store", () => {
  test("An unavailable store is reported as such, never as an invalid token.", async () => {
    const { token, state, authenticator } = setUp();
    state.down = true;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBeInstanceOf(StoreUnavailableError);
    state.down = false;
    expect(await codeOf(() => authenticator.authenticate(tokenHashHex(token)))).toBe("admitted");
  });

  test("A cached token remains valid for its 900 ms while the store is unavailable.", async () => {
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
