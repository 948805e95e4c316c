import type { AdjustmentRow, HoldRow, IdempotencyKeyRow, RequestRow, TokenBalanceRow, Transition } from "./books.ts";

/** A row of an organization, by its id, its key or its reference. */
export interface Name {
  organizationId: string;
  id: string;
}

/** The rows that a batch names, each once: what a store reads beside the balances and their live grants. */
export interface Names {
  organizationIds: string[];
  /** Holds, or the ended requests of the same ids. */
  holds: Name[];
  tokens: Name[];
  keys: Name[];
  grants: Name[];
  grantReferences: Name[];
  adjustments: Name[];
  adjustmentReferences: (Name & { kind: AdjustmentRow["kind"] })[];
}

export function namesOf(transitions: readonly Transition[]): Names {
  const organizationIds = new Set<string>();
  const [holds, tokens] = [new NameSet(), new NameSet()];
  const [keys, grants, grantReferences, adjustments] = [new NameSet(), new NameSet(), new NameSet(), new NameSet()];
  const adjustmentReferences: Names["adjustmentReferences"] = [];
  for (const transition of transitions) {
    if ("facts" in transition) {
      const { organizationId, holdId, tokenId, idempotencyKey } = transition.facts;
      organizationIds.add(organizationId);
      holds.add(organizationId, holdId);
      tokens.add(organizationId, tokenId);
      if (idempotencyKey !== null) keys.add(organizationId, idempotencyKey);
      if (transition.kind === "hold" && transition.idempotency) keys.add(organizationId, transition.idempotency.key);
      continue;
    }
    const { organizationId } = transition;
    organizationIds.add(organizationId);
    if ("holdId" in transition && transition.holdId !== null) {
      holds.add(organizationId, transition.holdId);
    }
    if (transition.kind === "grant") {
      grants.add(organizationId, transition.grantId);
      if (transition.reference !== null) grantReferences.add(organizationId, transition.reference);
    }
    if (transition.kind === "revoke" || transition.kind === "credit") {
      const { kind, adjustmentId, reference } = transition;
      adjustments.add(organizationId, adjustmentId);
      if (reference !== null) adjustmentReferences.push({ organizationId, kind, id: reference });
      if (kind === "revoke" && transition.grantId !== null) grants.add(organizationId, transition.grantId);
    }
  }
  return {
    organizationIds: [...organizationIds].sort(),
    holds: holds.names,
    tokens: tokens.names,
    keys: keys.names,
    grants: grants.names,
    grantReferences: grantReferences.names,
    adjustments: adjustments.names,
    adjustmentReferences,
  };
}

/** The grants that holds or requests draw on. */
export function grantsOf(rows: readonly (HoldRow | RequestRow)[]): Name[] {
  return rows.flatMap(({ organizationId, draws }) => draws.map(({ grantId }) => ({ organizationId, id: grantId })));
}

/** The keys of holds and requests that have one. */
export function keysOf(holds: readonly HoldRow[], requests: readonly RequestRow[]): Name[] {
  const own = [
    ...holds.map(({ organizationId, details }) => ({ organizationId, id: details.idempotencyKey })),
    ...requests.map(({ organizationId, idempotencyKey: id }) => ({ organizationId, id })),
  ];
  return own.flatMap(({ organizationId, id }) => (id === null ? [] : [{ organizationId, id }]));
}

export function tokensOf(holds: readonly HoldRow[], requests: readonly RequestRow[]): Name[] {
  return [
    ...holds.map(({ organizationId, details }) => ({ organizationId, id: details.tokenId })),
    ...requests.map(({ organizationId, tokenId }) => ({ organizationId, id: tokenId })),
  ];
}

/** The names of requests, for the adjustments that belong to them. */
export function requestNamesOf(requests: readonly RequestRow[]): Name[] {
  return requests.map(({ organizationId, holdId }) => ({ organizationId, id: holdId }));
}

/** The rows where the caps of tokens are that share one. */
export function budgetsOf(rows: readonly TokenBalanceRow[]): Name[] {
  return rows.flatMap(({ organizationId, budgetId }) => (budgetId === null ? [] : [{ organizationId, id: budgetId }]));
}

/** The holds that keys belong to. */
export function holdsOf(keys: readonly IdempotencyKeyRow[]): Name[] {
  return keys.map(({ organizationId, holdId }) => ({ organizationId, id: holdId }));
}

/** One text for a row of an organization, whose own id has no space in it. */
export function nameKey(organizationId: string, id: string): string {
  return `${organizationId} ${id}`;
}

class NameSet {
  readonly names: Name[] = [];
  readonly #seen = new Set<string>();

  add(organizationId: string, id: string): void {
    const key = nameKey(organizationId, id);
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    this.names.push({ organizationId, id });
  }
}
