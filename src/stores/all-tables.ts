import * as adminSchema from "./admin-schema.ts";
import * as schema from "./schema.ts";
import { Table, type TableShape } from "./table.ts";

const { ACCOUNT_VERSION, ...OTHERS } = schema;

/** All tables, for a copy of a whole store. To copy the others changes the last one. */
export const ALL_TABLES: readonly TableShape[] = [
  ...Object.values({ ...OTHERS, ...adminSchema }).filter((declared) => declared instanceof Table),
  ACCOUNT_VERSION,
];
