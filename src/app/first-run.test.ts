import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres } from "../../test/support/postgres.ts";
import { COMMAND_ACTOR, SERVICE_ACTOR } from "../admin/audit.ts";
import { hashOf } from "../admin/token.ts";
import { MICRO_PER_CREDIT } from "../credits/amount.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { CreditCore } from "../operations/core.ts";
import { addOrganization } from "../operations/organizations.ts";
import { openPostgresStore } from "../stores/postgres/postgres.ts";
import { openSqliteStore } from "../stores/sqlite/sqlite.ts";
import type { Store } from "../stores/store.ts";
import { ensureFirstOrganization, FIRST_CREDITS, type FirstRunServices } from "./first-run.ts";

/** Points at which a process is killed: before it makes the token, before it grants the credits, and after that. */
const DEATHS = ["token", "grant", "answer"] as const;

describe.each(DEATHS)("a first run that crashes before its %s", (death) => {
  test("is finished by the next start, on SQLite", () => onSqlite((store) => dieAndStartAgain(store, death)));
  test.skipIf(!hasPostgres)("is finished by the next start, on PostgreSQL", () =>
    onPostgres((store) => dieAndStartAgain(store, death)),
  );
});

test("an organization that a command created gets no token and no credits", () =>
  onSqlite(async (store) => {
    const { id } = await addOrganization({ ...coreOf(store), actor: COMMAND_ACTOR }, "default");
    expect(await ensureFirstOrganization(servicesOf(store))).toMatchObject({
      organization: { id },
      isOnlyOne: true,
      token: null,
    });
    expect(await store.books.balance(id)).toMatchObject({ granted: 0n });
  }));

async function dieAndStartAgain(store: Store, death: (typeof DEATHS)[number]): Promise<void> {
  const services = servicesOf(store);
  const { core } = services;
  const die = () => Promise.reject(new Error("killed"));
  const dying: FirstRunServices = {
    ...services,
    core: {
      ...core,
      accounts: { ...core.accounts, ...(death === "token" && { insertToken: die }) },
      async book(transition) {
        if (death !== "grant") await core.book(transition);
        return die();
      },
    },
  };
  await expect(ensureFirstOrganization(dying)).rejects.toThrow("killed");
  const { organization, isOnlyOne, token } = await ensureFirstOrganization(services);
  expect([organization.name, isOnlyOne]).toEqual(["default", true]);
  // With the credits granted, what became of the token cannot be known: it may have been shown.
  if (death === "answer") expect(token).toBeNull();
  else expect(await store.accounts.tokenByHash(hashOf(token ?? ""))).toMatchObject({ name: "first token" });
  expect(await store.books.balance(organization.id)).toMatchObject({ granted: FIRST_CREDITS * MICRO_PER_CREDIT });
  expect(await ensureFirstOrganization(services)).toMatchObject({ organization: { id: organization.id }, token: null });
}

function coreOf({ accounts, allowances, books }: Store): CreditCore {
  const clock = () => Date.now();
  const book: CreditCore["book"] = async (transition) => (await books.apply("durable", [transition]))[0];
  const core = { accounts, allowances, book, actor: SERVICE_ACTOR };
  return { ...core, clock, random: randomBytes, newId: () => uuidV7(clock()) };
}

function servicesOf(store: Store): FirstRunServices {
  return { store, core: coreOf(store) };
}

async function onSqlite(play: (store: Store) => Promise<void>): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-first-run-"));
  const store = await openSqliteStore({ dataDir, role: "service" });
  await play(store);
  await store.close();
  rmSync(dataDir, { recursive: true });
}

async function onPostgres(play: (store: Store) => Promise<void>): Promise<void> {
  const database = await createTestDatabase();
  const store = await openPostgresStore({ url: database.url, role: "service" });
  await play(store);
  await store.close();
  await database.drop();
}
