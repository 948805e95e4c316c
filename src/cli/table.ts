/** Rows under their headings in aligned columns; a column whose cells are all numbers stands to the right. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const columns = headings.map((heading, index) => {
    const cells = rows.map((row) => row[index] ?? "");
    const isNumeric = cells.length > 0 && cells.every((cell) => /^-?[\d.]+$/.test(cell));
    return { width: Math.max(...[heading, ...cells].map((cell) => cell.length)), isNumeric };
  });
  const line = (cells: readonly string[]) =>
    columns
      .map(({ width, isNumeric }, index) => (cells[index] ?? "")[isNumeric ? "padStart" : "padEnd"](width))
      .join("  ")
      .trimEnd();
  return [headings, ...rows].map(line).join("\n");
}

/** Names and values in two columns. */
export function facts(values: Record<string, string>): string {
  const width = Math.max(...Object.keys(values).map((name) => name.length));
  return Object.entries(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd())
    .join("\n");
}
