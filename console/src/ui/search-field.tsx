import { Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";

const DEBOUNCE_MS = 250;

/** Returns the text after a pause in typing; an empty text immediately. */
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

/** Search field that reports its text after a pause in typing. */
export function SearchField({ label, value, onValue }: SearchFieldProps) {
  const [typed, setTyped] = useState(value);
  const passedOn = useRef(value);
  // Takes over a value that was set elsewhere, for example by "Clear filters". A value that this field itself reported
  // must not overwrite text that was typed since.
  useEffect(() => {
    if (value === passedOn.current) return;
    passedOn.current = value;
    setTyped(value);
  }, [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only typing starts the timer
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
