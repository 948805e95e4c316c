import type { ReactNode } from "react";

const COLORS = 12;

/** Returns the color of a model, or a paler one, the same on every page and for everybody: by a hash of its ID (FNV-1a). */
export function modelColor(id: string, isPale = false): string {
  let hash = 0x811c9dc5;
  for (const character of id) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  return `var(--model-${((hash >>> 0) % COLORS) + 1}${isPale ? "-pale" : ""})`;
}

/** Name of a model next to its color. */
export function ModelName({ id, children }: { id: string; children: ReactNode }) {
  return (
    <span className="row row-model">
      <span className="swatch" style={{ background: modelColor(id) }} />
      {children}
    </span>
  );
}
