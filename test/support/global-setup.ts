import type { TestProject } from "vitest/node";
import { makePostgresServer, NoPostgresError } from "./postgres-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Address of a PostgreSQL server for the whole run; undefined where this machine cannot run one. */
    postgresUrl: string | undefined;
  }
}

/**
 * One real PostgreSQL server for the whole run. Where there is none for the machine, the run says so in one line, and the
 * tests that need it are skipped; where there is one and it does not start, the run fails.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  try {
    const server = await makePostgresServer();
    project.provide("postgresUrl", server.url);
    return () => server.remove();
  } catch (error) {
    if (!(error instanceof NoPostgresError)) throw error;
    console.warn(`Left out: the tests on PostgreSQL, because ${error.message}.`);
    project.provide("postgresUrl", undefined);
    return async () => {};
  }
}
