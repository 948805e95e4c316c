import type { Scope } from "../contract/scope.ts";
import type { LimitSettings, OrganizationKind } from "../stores/store.ts";

/** Who is calling: what a token stands for. */
export interface Principal {
  tokenId: string;
  organizationId: string;
  organizationKind: OrganizationKind;
  scopes: ReadonlySet<Scope>;
  /** Null: every model. */
  models: ReadonlySet<string> | null;
  /** The token's own limits where they differ from the service's. */
  limits: Partial<LimitSettings> | null;
}
