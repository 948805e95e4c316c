import { useEffect, useEffectEvent, useState } from "react";
import { Dialog } from "../ui/dialog.tsx";
import { Checks } from "../ui/field.tsx";
import { Facts } from "../ui/page.tsx";
import { readStored, store } from "../ui/stored.ts";

const STORED = "tollgate_single_keys_off";

const SHORTCUTS = [
  [["Ctrl", "K"], "Go to a page, an action, a name or an ID. On a Mac: Command+K"],
  [["?"], "Show this list"],
  [["Tab"], "Move to the next link, button or field"],
  [["Esc"], "Close a dialog or a list"],
  [["↑", "↓"], "Move in a list of results"],
  [["←", "→"], "Move between the columns of a chart. Enter opens the requests of one"],
  [["Enter"], "Playground: send the message. Shift+Enter begins a new line"],
] as const;

interface Shortcuts {
  onSearch: () => void;
  onHelp: () => void;
}

/** Calls `onSearch` on Ctrl+K or Command+K and `onHelp` on "?", unless a dialog is open. */
export function useShortcuts({ onSearch, onHelp }: Shortcuts): void {
  const pressed = useEffectEvent((event: KeyboardEvent) => {
    const isSearch = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k";
    // The browser's own shortcut would leave the page.
    if (isSearch) event.preventDefault();
    if (document.querySelector("dialog[open]") !== null) return;
    if (isSearch) onSearch();
    else if (event.key === "?" && !isTyping(event.target) && readStored(STORED) !== true) onHelp();
  });
  useEffect(() => {
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && target.closest("input, textarea, select") !== null;

/** List of the keyboard shortcuts. Those of a single key can be turned off (WCAG 2.2, 2.1.4). */
export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  const [isOff, setOff] = useState(readStored(STORED) === true);
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <div className="dialog-body">
        <Facts
          facts={SHORTCUTS.map(([keys, text]) => [
            text,
            <span key={text} className="row">
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </span>,
          ])}
        />
        <Checks
          label="Single keys"
          options={[["on", "Open this list with the key ?"]]}
          chosen={new Set(isOff ? [] : ["on"])}
          onChosen={(chosen) => {
            store(STORED, !chosen.has("on"));
            setOff(!chosen.has("on"));
          }}
        />
      </div>
    </Dialog>
  );
}
