import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { PostgresProxy } from "../support/postgres-proxy.ts";
import { makePostgresServer, type PostgresServer, SMALL_TABLES } from "../support/postgres-server.ts";
import { mountSmallDisk, type SmallDisk } from "../support/small-disk.ts";

export type StoreKind = "sqlite" | "postgres";

export interface PlaceOptions {
  store: StoreKind;
  /** Size of the disk for the store, in megabytes. */
  diskMegabytes?: number;
  /** Programs of the system that its trials start. */
  programs?: string[];
}

/** The store of a site: a PostgreSQL server behind a proxy, or a disk for SQLite. */
export interface Place {
  postgres: { server: PostgresServer; proxy: PostgresProxy } | undefined;
  disk: SmallDisk | undefined;
}

/** This machine lacks a program that a trial starts; says which. */
export class NoProgramError extends Error {}

/**
 * Makes the store of a site. Rejects with NoProgramError, NoPostgresError or NoSmallDiskError where this machine lacks
 * what that needs.
 */
export async function openPlace(
  directory: string,
  { store, diskMegabytes, programs = [] }: PlaceOptions,
): Promise<Place> {
  for (const program of programs) {
    const { status } = spawnSync("which", [program]);
    if (status !== 0) throw new NoProgramError(`${program} is not on the PATH`);
  }
  if (store === "postgres") {
    const server = await makePostgresServer({ diskMegabytes, settings: SMALL_TABLES });
    return { postgres: { server, proxy: await PostgresProxy.open(server.url) }, disk: server.disk };
  }
  const data = join(directory, "data");
  const disk = diskMegabytes === undefined ? undefined : await mountSmallDisk(data, diskMegabytes);
  return { postgres: undefined, disk };
}
