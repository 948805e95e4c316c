import { useSearchParams } from "wouter";

/** Filters that stand in the page's address, so that a view can be kept and passed on. Empty: not set. */
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
