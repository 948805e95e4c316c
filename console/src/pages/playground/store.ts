import { useSyncExternalStore } from "react";
import { type Conversation, conversationAfter, EMPTY_CONVERSATION, type Event } from "./conversation.ts";
import { FIRST_SETTINGS, type Settings } from "./settings.ts";

/** One of the models that answer side by side. */
export interface Column {
  key: number;
  /** Empty until one is selected: the default applies. */
  model: string;
  conversation: Conversation;
}

export interface Playground {
  columns: readonly Column[];
  settings: Settings;
  /** The organization that an operator selected. */
  organizationId: string | null;
}

export const COLUMNS_MAX = 3;
const FIRST_COLUMN: Column = { key: 0, model: "", conversation: EMPTY_CONVERSATION };

// In memory only, so that the conversation survives navigation, and ends with the page.
let playground: Playground = { columns: [FIRST_COLUMN], settings: FIRST_SETTINGS, organizationId: null };
const listeners = new Set<() => void>();
/** The answers that are running, by the keys of their columns. */
export const running = new Map<number, AbortController>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const current = (): Playground => playground;

export function usePlayground(): Playground {
  return useSyncExternalStore(subscribe, current);
}

export function change(changes: Partial<Playground>): void {
  playground = { ...playground, ...changes };
  for (const listener of listeners) listener();
}

export function changeColumn(key: number, update: (column: Column) => Column): void {
  change({ columns: playground.columns.map((column) => (column.key === key ? update(column) : column)) });
}

/** Reduces an event into the conversation of a column. */
export function dispatch(key: number, event: Event): void {
  changeColumn(key, (column) => ({ ...column, conversation: conversationAfter(column.conversation, event) }));
}

/** Adds a column that continues the conversation of the first one with another model. */
export function addColumn(model: string): void {
  const { columns } = playground;
  const key = Math.max(...columns.map((column) => column.key)) + 1;
  const conversation = columns[0]?.conversation ?? EMPTY_CONVERSATION;
  change({ columns: [...columns, { key, model, conversation }] });
}

export function removeColumn(key: number): void {
  running.get(key)?.abort();
  change({ columns: playground.columns.filter((column) => column.key !== key) });
}

export function clear(): void {
  for (const controller of running.values()) controller.abort();
  for (const { key } of playground.columns) dispatch(key, { kind: "cleared" });
}
