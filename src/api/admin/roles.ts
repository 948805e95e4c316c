/** Roles of people. `SERVICE_ROLES` see every organization, `ORGANIZATION_ROLES` only their own. */
export const SERVICE_ROLES = ["operator", "auditor"] as const;
export const ORGANIZATION_ROLES = ["owner", "developer", "billing", "member"] as const;
export const ROLES = [...SERVICE_ROLES, ...ORGANIZATION_ROLES] as const;
export type Role = (typeof ROLES)[number];
/** Who or what made a change: a person in a role, or a process. Anonymous: without a valid token. */
export const ACTOR_KINDS = [...ROLES, "command", "service", "anonymous"] as const;
export type ActorKind = (typeof ACTOR_KINDS)[number];

const [OPERATOR, SERVICE, SIGNED_IN] = [["operator"], SERVICE_ROLES, ROLES] as const;
const READERS = [...SERVICE_ROLES, "owner", "member"] as const;
const EVERYONE = ["guest", ...ROLES] as const;

/** The roles that have each permission; nothing else decides who may do what. `docs/identity.md` shows the same table. */
export const ROLES_BY_PERMISSION = {
  "service:read": EVERYONE,
  "session:own": EVERYONE,
  "playground:use": ["guest", "operator", "owner", "developer", "member"],
  "usage:read": SIGNED_IN,
  "models:read": SIGNED_IN,
  "organizations:read": SIGNED_IN,
  "organizations:write": OPERATOR,
  "credits:read": [...READERS, "billing"],
  "credits:write": OPERATOR,
  /** To ask for credits. */
  "credits:request": ORGANIZATION_ROLES,
  /** To buy credits at Stripe, and to redeem vouchers. */
  "credits:buy": ["operator", "owner"],
  "vouchers:read": SERVICE,
  "vouchers:write": OPERATOR,
  "budgets:read": SIGNED_IN,
  "budgets:write": ["operator", "owner"],
  "tokens:read": [...READERS, "developer"],
  /** Without `tokens:unbounded`: to create tokens within the bounds of the organization, and to change those. */
  "tokens:write": ["operator", "owner", "developer"],
  "tokens:unbounded": OPERATOR,
  /** To see tokens that others created and their spending, and with `tokens:write` to revoke them. */
  "all-tokens:read": [...READERS, "billing"],
  "token-bounds:write": ["operator", "owner"],
  "requests:read": READERS,
  "conversations:read": SERVICE,
  "conversations:delete": OPERATOR,
  /** Routes with their health, latencies of all organizations, and the providers' own costs and ids. */
  "upstreams:read": SERVICE,
  "upstreams:write": OPERATOR,
  "audit:read": SERVICE,
  /** Receivers of warnings, and what was delivered to them. */
  "receivers:read": [...SERVICE_ROLES, "owner"],
  "receivers:write": ["operator", "owner"],
  "operators:read": SERVICE,
  "operators:write": OPERATOR,
  "identities:read": SERVICE,
  "identities:block": OPERATOR,
  "sessions:read": SERVICE,
  "sessions:end": OPERATOR,
} as const satisfies Record<string, readonly (Role | "guest")[]>;

export type Permission = keyof typeof ROLES_BY_PERMISSION;
export const PERMISSIONS = Object.keys(ROLES_BY_PERMISSION) as readonly Permission[];

/** Returns the roles that have a permission, also "guest". */
export function rolesWith(permission: Permission): readonly (Role | "guest")[] {
  return ROLES_BY_PERMISSION[permission];
}

/** Returns whether a role has a permission; null stands for a guest. */
export function permits(role: Role | null, permission: Permission): boolean {
  return rolesWith(permission).includes(role ?? "guest");
}
