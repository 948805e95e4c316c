import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useState } from "react";
import { useLocation } from "wouter";
import { searchResults } from "../api/queries.ts";
import type { SearchResult } from "../api/types.ts";
import { Dialog } from "../ui/dialog.tsx";
import { useDebounced } from "../ui/search-field.tsx";
import { type FailingQuery, QueryFailure } from "../ui/states.tsx";
import { useAccess } from "./session.ts";

interface Entry {
  id: string;
  group: string;
  text: string;
  note?: string;
  path: string;
}

interface PaletteProps {
  pages: readonly { path: string; label: string }[];
  onClose: () => void;
}

/** Dialog that goes to a page, starts an action, or opens whatever an id or a name belongs to. */
export function CommandPalette({ pages, onClose }: PaletteProps) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const [, go] = useLocation();
  const { entries, isStale, failed } = useEntries(pages, typed);
  const id = useId();
  const active = Math.min(at, entries.length - 1);
  useEffect(() => {
    document.getElementById(`${id}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [id, active]);
  const open = (entry: Entry) => {
    onClose();
    go(entry.path);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const entry = entries[active];
    if (step !== undefined && entries.length > 0) setAt((active + step + entries.length) % entries.length);
    else if (event.key === "Enter" && entry !== undefined) open(entry);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" className="palette" onClose={onClose}>
      <form className="palette-field" onSubmit={(event) => event.preventDefault()}>
        <input
          type="text"
          role="combobox"
          aria-label="Page, action, name or ID"
          placeholder="Page, action, name or ID"
          autoComplete="off"
          spellCheck={false}
          aria-autocomplete="list"
          aria-expanded={entries.length > 0}
          aria-controls={`${id}-list`}
          aria-activedescendant={entries.length > 0 ? `${id}-${active}` : undefined}
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
      </form>
      <Results id={id} entries={entries} active={active} isStale={isStale} failed={failed} onOpen={open} />
    </Dialog>
  );
}

interface ResultsProps {
  id: string;
  entries: readonly Entry[];
  active: number;
  isStale: boolean;
  /** The search, if it failed. */
  failed: FailingQuery | null;
  onOpen: (entry: Entry) => void;
}

function Results({ id, entries, active, isStale, failed, onOpen }: ResultsProps) {
  return (
    <div className="palette-results">
      <div id={`${id}-list`} role="listbox" aria-label="Results" aria-busy={isStale}>
        {entries.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field handles the keys
          <div
            key={entry.id}
            id={`${id}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === active}
            className={index === active ? "picker-option picker-active" : "picker-option"}
            onClick={() => onOpen(entry)}
          >
            <span className="row spread">
              <span className="wrap-anywhere">{entry.text}</span>
              <span className="small faint">{entry.group}</span>
            </span>
            {entry.note && <span className="mono faint wrap-anywhere">{entry.note}</span>}
          </div>
        ))}
      </div>
      {failed === null ? (
        <p role="status" className={entries.length > 0 ? "visually-hidden" : "picker-note small faint"}>
          {statusOf(entries.length, isStale)}
        </p>
      ) : (
        <QueryFailure query={failed} />
      )}
    </div>
  );
}

function statusOf(count: number, isStale: boolean): string {
  if (isStale) return "Searching …";
  return count === 0 ? "No matches." : `${count} ${count === 1 ? "match" : "matches"}`;
}

function useEntries(
  pages: PaletteProps["pages"],
  typed: string,
): { entries: Entry[]; isStale: boolean; failed: FailingQuery | null } {
  const { may } = useAccess();
  const text = typed.trim();
  const debounced = useDebounced(text);
  const found = useQuery({
    ...searchResults(idIn(debounced)),
    enabled: debounced !== "" && may("organizations:read"),
    placeholderData: keepPreviousData,
  });
  const actions = [
    ...(may("organizations:write")
      ? [
          entryOf("Action", "New customer", "/organizations?create=customer"),
          entryOf("Action", "Create organization", "/organizations?create=1"),
        ]
      : []),
    ...(may("tokens:write") ? [entryOf("Action", "Create token", "/tokens?create=1")] : []),
  ];
  const named = [...pages.map(({ label, path }) => entryOf("Page", label, path)), ...actions];
  const isMatch = ({ text: name }: Entry) => name.toLowerCase().includes(text.toLowerCase());
  const isStale = text !== "" && (text !== debounced || found.isFetching);
  const results = text === "" || isStale ? [] : (found.data?.data ?? []).map(foundEntry);
  return { entries: [...named.filter(isMatch), ...results], isStale, failed: found.isError && !isStale ? found : null };
}

function entryOf(group: string, text: string, path: string): Entry {
  return { id: `${group}:${path}`, group, text, path };
}

/** Returns the id in the address of a request, an organization or a token, or else the text itself. */
function idIn(text: string): string {
  const [, id] = /\/(?:requests|organizations|tokens)\/([\w.-]+)/.exec(text) ?? [];
  return id ?? text;
}

const KINDS: Record<SearchResult["kind"], { group: string; pathOf: (result: SearchResult) => string }> = {
  request: { group: "Request", pathOf: ({ id }) => `/requests/${encodeURIComponent(id)}` },
  organization: { group: "Organization", pathOf: ({ id }) => `/organizations/${encodeURIComponent(id)}` },
  token: { group: "Token", pathOf: ({ id }) => `/tokens/${encodeURIComponent(id)}` },
  grant: { group: "Grant", pathOf: ({ organization_id }) => `/organizations/${encodeURIComponent(organization_id)}` },
};

function foundEntry(result: SearchResult): Entry {
  const { group, pathOf } = KINDS[result.kind];
  const owner = result.kind === "organization" ? "" : ` · ${result.organization_name}`;
  return { id: result.id, group, text: result.name, note: `${result.id}${owner}`, path: pathOf(result) };
}
