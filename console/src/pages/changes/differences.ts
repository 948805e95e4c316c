type Values = Record<string, unknown> | null;

/** What a change did, by field: the fields that differ, or all of what was made. */
export function differences(before: Values, after: Values): { name: string; from: string | null; to: string }[] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].flatMap((name) => {
    const from = before === null ? null : inWords(before[name]);
    const to = after === null ? "" : inWords(after[name]);
    return from === to ? [] : [{ name, from, to }];
  });
}

function inWords(value: unknown): string {
  if (value === undefined || value === null) return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}
