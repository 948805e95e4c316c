import { Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";

const DEBOUNCE_MS = 250;

/** What is typed, once the typing rests; at once where nothing is. */
export function useDebounced(typed: string): string {
  const [debounced, setDebounced] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(typed), DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return typed === "" ? "" : debounced;
}

interface SearchFieldProps {
  label: string;
  value: string;
  onValue: (value: string) => void;
}

/** A search that is passed on when the typing rests. */
export function SearchField({ label, value, onValue }: SearchFieldProps) {
  const [typed, setTyped] = useState(value);
  const passedOn = useRef(value);
  // What was set elsewhere, such as by a button that clears it. What comes back of what was typed here takes nothing of
  // what was typed since.
  useEffect(() => {
    if (value === passedOn.current) return;
    passedOn.current = value;
    setTyped(value);
  }, [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it waits for the typing alone
  useEffect(() => {
    if (typed.trim() === value) return;
    const timer = setTimeout(() => {
      passedOn.current = typed.trim();
      onValue(passedOn.current);
    }, DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <div className="search">
      <Search size={15} aria-hidden="true" />
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
    </div>
  );
}
