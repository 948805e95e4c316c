import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Issuer, startIssuer } from "../../test/support/issuer.ts";
import { keepLog } from "../../test/support/log.ts";
import { openSqliteStore } from "../stores/sqlite/sqlite.ts";
import type { Store } from "../stores/store.ts";
import { IssuerKeys } from "./issuer-keys.ts";

const HOUR_MS = 3_600_000;

let directory: string;
let store: Store;
let issuer: Issuer;
let nowMs: number;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tollgate-issuer-keys-"));
  nowMs = 1_800_000_000_000;
  store = await openSqliteStore({ dataDir: directory, role: "service", clock: () => nowMs });
  issuer = await startIssuer();
});
afterEach(async () => {
  vi.useRealTimers();
  await issuer.close();
  await store.close();
  await rm(directory, { recursive: true });
});

const keysOf = () =>
  new IssuerKeys({ rows: store.identities, issuers: () => [issuer.url], clock: () => nowMs, log: keepLog() });
/** Returns the ids of the keys that a node uses. */
const idsOf = async (node: IssuerKeys) => (await node.of(issuer.url)).jwks().keys.map(({ kid }) => kid);

describe("the keys of an issuer", () => {
  test("the last ones are used for 24 h while the issuer is away, then its tokens get 503 until it is back", async () => {
    const node = keysOf();
    expect(await idsOf(node)).toEqual(["key-1"]);
    issuer.behaviour.isDown = true;
    nowMs += 24 * HOUR_MS - 1;
    expect(await idsOf(node)).toEqual(["key-1"]);
    // Also for a node that starts meanwhile, and reads them in the store.
    expect(await idsOf(keysOf())).toEqual(["key-1"]);
    nowMs += 1;
    for (const one of [node, keysOf()]) {
      await expect(one.of(issuer.url)).rejects.toMatchObject({ code: "issuer_unavailable", status: 503 });
    }
    issuer.behaviour.isDown = false;
    await issuer.rotate();
    nowMs += 30_000;
    expect(await idsOf(node)).toEqual(["key-2"]);
  });

  test("a forced refresh asks the issuer at most once in 30 s, for all nodes together", async () => {
    const nodes = [keysOf(), keysOf(), keysOf()];
    const refresh = () => Promise.all(nodes.map((node) => node.refresh(issuer.url)));
    await refresh();
    expect(issuer.reads.keys).toBe(1);
    await issuer.rotate();
    nowMs += 29_999;
    await refresh();
    expect(issuer.reads.keys).toBe(1);
    nowMs += 30_000;
    await refresh();
    expect(issuer.reads.keys).toBe(2);
    // The other nodes take them from the store within a second.
    nowMs += 1_000;
    await refresh();
    expect(await Promise.all(nodes.map(idsOf))).toEqual([["key-2"], ["key-2"], ["key-2"]]);
    expect(issuer.reads.keys).toBe(2);
  });

  test("a timer reads them again every hour, without a request", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const node = keysOf();
    node.start();
    await expect.poll(() => issuer.reads.keys).toBe(1);
    await node.of(issuer.url);
    await issuer.rotate();
    for (let minute = 1; minute < 60; minute += 1) {
      nowMs += 60_000;
      vi.advanceTimersByTime(60_000);
    }
    expect(issuer.reads.keys).toBe(1);
    nowMs += 60_000;
    vi.advanceTimersByTime(60_000);
    await expect.poll(() => idsOf(node)).toEqual(["key-2"]);
    await node.stop();
  });
});
