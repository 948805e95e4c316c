/** Returns the cells of a row that is one line; undefined if its quotes do not match or it has more than 1 Mi characters. */
export function csvCells(row: string): string[] | undefined {
  if (row.length > 1024 * 1024) return undefined;
  const cells = [...`,${row}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^",]*))/g)];
  if (cells.map(([cell]) => cell).join("") !== `,${row}`) return undefined;
  return cells.map(([, quoted, plain = ""]) => quoted?.replaceAll('""', '"') ?? plain);
}
