/** A process that makes statements until it is killed: its arguments are the kind of the store, its place, and organizations. */
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import { storeDigests } from "../support/month-digests.ts";

const [kind, place = "", ...organizationIds] = process.argv.slice(2);
const store =
  kind === "postgres"
    ? await openPostgresStore({ url: place, role: "service" })
    : await openSqliteStore({ dataDir: place, role: "service" });
console.log("ready");
for (const organizationId of organizationIds) await storeDigests(store, organizationId, 1);
await store.close();
