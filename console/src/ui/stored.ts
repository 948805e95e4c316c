/** Reads a choice that the browser keeps; null if there is none, or storage is blocked. */
export function readStored(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/** Keeps a choice in the browser. Where storage is blocked it lasts until the page is left. */
export function store(key: string, value: unknown): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // The caller has the value.
  }
}
