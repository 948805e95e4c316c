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
  /** Those of them that the batch makes: they are rarely found. */
  newHolds: Name[];
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
  const newHolds: Name[] = [];
  for (const transition of transitions) {
    if ("facts" in transition) {
      const { organizationId, holdId, tokenId, idempotencyKey } = transition.facts;
      organizationIds.add(organizationId);
      holds.add(organizationId, holdId);
      if (transition.kind === "hold") newHolds.push({ organizationId, id: holdId });
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
    newHolds,
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

/** Each name once, without those of `read`. */
export function without(names: readonly Name[], read: readonly Name[]): Name[] {
  if (names.length === 0) return [];
  const seen = new NameMap<Name>();
  for (const name of read) seen.set(name.organizationId, name.id, name);
  return names.filter((name) => {
    const isNew = !seen.has(name.organizationId, name.id);
    if (isNew) seen.set(name.organizationId, name.id, name);
    return isNew;
  });
}

interface Entry<Value> {
  organizationId: string;
  value: Value;
  /** Of another organization with the same id. */
  next: Entry<Value> | undefined;
}

/** Values by organization and id. */
export class NameMap<Value> {
  /** By id, which few organizations share: a key made of both texts would have to be joined and hashed for each use. */
  readonly #entries = new Map<string, Entry<Value>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(organizationId: string, id: string): Value | undefined {
    return this.#find(organizationId, id)?.value;
  }

  has(organizationId: string, id: string): boolean {
    return this.#find(organizationId, id) !== undefined;
  }

  set(organizationId: string, id: string, value: Value): void {
    const found = this.#find(organizationId, id);
    if (found !== undefined) {
      found.value = value;
      return;
    }
    this.#entries.set(id, { organizationId, value, next: this.#entries.get(id) });
    this.#size += 1;
  }

  delete(organizationId: string, id: string): void {
    if (!this.has(organizationId, id)) return;
    let kept: Entry<Value> | undefined;
    for (let entry = this.#entries.get(id); entry !== undefined; entry = entry.next) {
      if (entry.organizationId !== organizationId) kept = { ...entry, next: kept };
    }
    if (kept === undefined) this.#entries.delete(id);
    else this.#entries.set(id, kept);
    this.#size -= 1;
  }

  /** Returns all values. */
  values(): Value[] {
    const values: Value[] = [];
    for (const first of this.#entries.values()) {
      for (let entry: Entry<Value> | undefined = first; entry !== undefined; entry = entry.next)
        values.push(entry.value);
    }
    return values;
  }

  #find(organizationId: string, id: string): Entry<Value> | undefined {
    let entry = this.#entries.get(id);
    while (entry !== undefined && entry.organizationId !== organizationId) entry = entry.next;
    return entry;
  }
}

class NameSet {
  readonly names: Name[] = [];
  readonly #seen = new NameMap<true>();

  add(organizationId: string, id: string): void {
    if (this.#seen.has(organizationId, id)) return;
    this.#seen.set(organizationId, id, true);
    this.names.push({ organizationId, id });
  }
}
