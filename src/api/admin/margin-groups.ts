/** Groups by which margins are added up. Commands load this list without the schemas. */
export const MARGIN_GROUPS = ["model", "route", "organization"] as const;
