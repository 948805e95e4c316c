import type { ReactNode } from "react";

const COLORS = 12;
/** Has no common divisor with the number of colors, so that all are reached. */
const STEP = 5;

/** With this basis of the hash, the models of the sandbox have different colors. */
const BASIS = 242;

/** Returns a number below the number of colors, the same on every page and for everybody: a hash of the ID (FNV-1a). */
function usualColor(id: string): number {
  let hash = BASIS;
  for (const character of id) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  return ((hash ^ (hash >>> 16)) >>> 0) % COLORS;
}

/**
 * Returns the colors of models that are shown together: all different, up to the number of colors. A model has its usual
 * color, unless one before it in alphabetical order has the same. The order in which they are stated does not matter.
 */
export function modelColors(ids: Iterable<string>): (id: string) => string {
  const free = new Set(Array.from({ length: COLORS }, (_, index) => index));
  const colors = new Map<string, number>();
  const sorted = [...new Set(ids)].sort();
  for (const id of sorted) {
    if (free.delete(usualColor(id))) colors.set(id, usualColor(id));
  }
  for (const id of sorted) {
    if (colors.has(id)) continue;
    let color = usualColor(id);
    while (free.size > 0 && !free.delete(color)) color = (color + STEP) % COLORS;
    colors.set(id, color);
  }
  return (id) => `var(--model-${(colors.get(id) ?? usualColor(id)) + 1})`;
}

interface ModelNameProps {
  id: string;
  /** Colors of the models that are shown together; by default the usual ones. */
  colorOf?: (id: string) => string;
  children: ReactNode;
}

const usualColors = modelColors([]);

/** Name of a model next to its color. */
export function ModelName({ id, colorOf = usualColors, children }: ModelNameProps) {
  return (
    <span className="row row-model">
      <span className="swatch" style={{ background: colorOf(id) }} />
      {children}
    </span>
  );
}
