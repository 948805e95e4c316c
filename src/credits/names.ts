import type { AdjustmentRow, HoldRow, RequestRow, Transition } from "./books.ts";
import type { Counter } from "./budget-uses.ts";
import type { CallerKey } from "./facts.ts";

/** A row of an organization, by its id or its reference. */
export interface RowName {
  organizationId: string;
  id: string;
}

/** An idempotency key of an organization; its id is that of `keyIdOf`. */
export type KeyName = RowName & CallerKey;

/** A counter of a budget. */
export type BudgetUseName = RowName & Counter;

/** The rows that a batch names, each once. A store reads them beside the balances and their active grants. */
export interface Names {
  organizationIds: string[];
  /** Holds, or the ended requests of the same ids. */
  holds: RowName[];
  /** Holds that the batch makes: they rarely exist already. */
  newHolds: RowName[];
  keys: KeyName[];
  grants: RowName[];
  referredGrants: RowName[];
  adjustments: RowName[];
  referredAdjustments: (RowName & { kind: AdjustmentRow["kind"] })[];
}

/** Returns the organization whose balance a transition locks. */
export function organizationIdOf(transition: Transition): string {
  return "facts" in transition ? transition.facts.organizationId : transition.organizationId;
}

/** Returns the hold of a transition, null if it has none. */
export function holdIdOf(transition: Transition): string | null {
  if ("facts" in transition) return transition.facts.holdId;
  return "holdId" in transition ? transition.holdId : null;
}

/** Returns the rows that transitions name. */
export function namesOf(transitions: readonly Transition[]): Names {
  const organizationIds = new Set<string>();
  const holds = new NameSet();
  const [grants, referredGrants, adjustments] = [new NameSet(), new NameSet(), new NameSet()];
  const keys = new NameMap<KeyName>();
  const referredAdjustments: Names["referredAdjustments"] = [];
  const newHolds: RowName[] = [];
  for (const transition of transitions) {
    if ("facts" in transition) {
      const { organizationId, holdId, idempotencyKey } = transition.facts;
      organizationIds.add(organizationId);
      holds.add(organizationId, holdId);
      if (transition.kind === "hold") newHolds.push({ organizationId, id: holdId });
      if (idempotencyKey !== null) addKey(keys, organizationId, idempotencyKey);
      if (transition.kind === "hold" && transition.idempotency) addKey(keys, organizationId, transition.idempotency);
      continue;
    }
    const { organizationId } = transition;
    organizationIds.add(organizationId);
    if ("holdId" in transition && transition.holdId !== null) {
      holds.add(organizationId, transition.holdId);
    }
    if (transition.kind === "grant") {
      grants.add(organizationId, transition.grantId);
      if (transition.reference !== null) referredGrants.add(organizationId, transition.reference);
    }
    if (transition.kind === "revoke" || transition.kind === "credit") {
      const { kind, adjustmentId, reference } = transition;
      adjustments.add(organizationId, adjustmentId);
      if (reference !== null) referredAdjustments.push({ organizationId, kind, id: reference });
      if (kind === "revoke" && transition.grantId !== null) grants.add(organizationId, transition.grantId);
    }
  }
  return {
    organizationIds: [...organizationIds].sort(),
    holds: holds.names,
    newHolds,
    keys: keys.values(),
    grants: grants.names,
    referredGrants: referredGrants.names,
    adjustments: adjustments.names,
    referredAdjustments,
  };
}

/** Returns the grants that holds or requests draw on, each once. */
export function grantsOf(rows: readonly (HoldRow | RequestRow)[]): RowName[] {
  const grants = new NameSet();
  for (const { organizationId, draws } of rows) {
    for (const { grantId } of draws) grants.add(organizationId, grantId);
  }
  return grants.names;
}

/** Returns the keys of holds and requests that have one, each once. */
export function keysOf(holds: readonly HoldRow[], requests: readonly RequestRow[]): KeyName[] {
  const keys = new NameMap<KeyName>();
  const add = (organizationId: string, key: CallerKey | null) => {
    if (key !== null) addKey(keys, organizationId, key);
  };
  for (const { organizationId, details } of holds) add(organizationId, details.idempotencyKey);
  for (const { organizationId, idempotencyKey } of requests) add(organizationId, idempotencyKey);
  return keys.values();
}

/** Returns a text that identifies a key within its organization. No key contains a line feed. */
export function keyIdOf({ callerId, key }: CallerKey): string {
  return `${callerId}\n${key}`;
}

function addKey(keys: NameMap<KeyName>, organizationId: string, { callerId, key }: CallerKey): void {
  const id = keyIdOf({ callerId, key });
  keys.set(organizationId, id, { organizationId, id, callerId, key });
}

/** Returns the names of holds or requests: of themselves, or of those that keys belong to. */
export function holdNamesOf(rows: readonly { organizationId: string; holdId: string }[]): RowName[] {
  return rows.map(({ organizationId, holdId }) => ({ organizationId, id: holdId }));
}

/** Returns each name or row once, except those that `read` names. */
export function without<Named extends RowName>(names: readonly Named[], read: readonly RowName[]): Named[] {
  if (names.length === 0) return [];
  const seen = new NameMap<RowName>();
  for (const name of read) seen.set(name.organizationId, name.id, name);
  return names.filter((name) => {
    const isNew = !seen.has(name.organizationId, name.id);
    if (isNew) seen.set(name.organizationId, name.id, name);
    return isNew;
  });
}

/** Values by organization and id. */
export class NameMap<Value> {
  /** Nested: a key of both texts would be joined and hashed for each use. */
  readonly #organizations = new Map<string, Map<string, Value>>();

  get size(): number {
    return this.#organizations.values().reduce((sum, values) => sum + values.size, 0);
  }

  get(organizationId: string, id: string): Value | undefined {
    return this.#organizations.get(organizationId)?.get(id);
  }

  has(organizationId: string, id: string): boolean {
    return this.#organizations.get(organizationId)?.has(id) === true;
  }

  set(organizationId: string, id: string, value: Value): void {
    const values = this.#organizations.get(organizationId);
    if (values === undefined) this.#organizations.set(organizationId, new Map([[id, value]]));
    else values.set(id, value);
  }

  delete(organizationId: string, id: string): void {
    this.#organizations.get(organizationId)?.delete(id);
  }

  /** Returns all values, organization by organization. */
  values(): Value[] {
    return [...this.#organizations.values()].flatMap((values) => [...values.values()]);
  }
}

class NameSet {
  readonly names: RowName[] = [];
  readonly #seen = new NameMap<true>();

  add(organizationId: string, id: string): void {
    if (this.#seen.has(organizationId, id)) return;
    this.#seen.set(organizationId, id, true);
    this.names.push({ organizationId, id });
  }
}
