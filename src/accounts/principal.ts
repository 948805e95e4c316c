export type { Principal } from "../contract/principal.ts";
