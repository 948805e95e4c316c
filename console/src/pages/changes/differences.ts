type Values = Record<string, unknown> | null;

/** What a change did, by field: the fields that differ, or all that was set of what was made. */
export function differences(before: Values, after: Values): { name: string; from: string | null; to: string }[] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].flatMap((name) => {
    const from = before === null ? null : inWords(before[name]);
    const to = after === null ? "" : inWords(after[name]);
    const isUnset = before === null && to === NONE;
    return from === to || isUnset ? [] : [{ name: spaced(name), from, to }];
  });
}

const NONE = "none";

/** `expiresAt` and `expires_at` as words. */
function spaced(name: string): string {
  return name.replaceAll("_", " ").replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function inWords(value: unknown): string {
  if (value === undefined || value === null) return NONE;
  if (Array.isArray(value)) return value.map(inWords).join(", ");
  if (typeof value !== "object") return String(value);
  return Object.entries(value)
    .map(([name, part]) => `${spaced(name)} ${inWords(part)}`)
    .join(", ");
}
