import { Download } from "lucide-react";
import { useSearchParams } from "wouter";
import { withQuery } from "../api/client.ts";
import { BASE_PATH } from "../base-path.ts";

/** Keeps filters in the query string, so that a view can be bookmarked and shared. An empty value is not set. */
export function useFilters<Name extends string>(names: readonly Name[]) {
  const [params, setParams] = useSearchParams();
  const values = Object.fromEntries(names.map((name) => [name, params.get(name) ?? ""])) as Record<Name, string>;
  const set = (changes: Partial<Record<Name, string>>) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries<string | undefined>(changes)) {
          if (value === undefined || value === "") after.delete(name);
          else after.set(name, value);
        }
        return after;
      },
      { replace: true },
    );
  return [values, set] as const;
}

interface ChoiceProps {
  label: string;
  /** Text of the option that selects all. */
  all: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onValue: (value: string) => void;
}

/** Select for one value or all. A selected value that is not among the options stays visible. */
export function Choice({ label, all, value, options, onValue }: ChoiceProps) {
  const isListed = value === "" || options.some(([option]) => option === value);
  return (
    <select className="filter" aria-label={label} value={value} onChange={(event) => onValue(event.target.value)}>
      <option value="">{all}</option>
      {!isListed && <option value={value}>{value}</option>}
      {options.map(([option, text]) => (
        <option key={option} value={option}>
          {text}
        </option>
      ))}
    </select>
  );
}

const EXPORT_FORMATS = [
  ["csv", "Export CSV"],
  ["jsonl", "Export JSON Lines"],
] as const;

/** Links to the files of a list: all rows that match the filters, the newest first. */
export function ExportLinks({ path, filter }: { path: string; filter: Record<string, string> }) {
  return EXPORT_FORMATS.map(([format, text]) => (
    <a
      key={format}
      className="button button-plain"
      href={`${BASE_PATH}${withQuery(`${path}.${format}`, filter)}`}
      download
    >
      <Download size={15} strokeWidth={1.9} aria-hidden="true" />
      <span>{text}</span>
    </a>
  ));
}
