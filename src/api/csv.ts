/** Returns the cells of a row that is one line; undefined if its quotes do not match. */
export function csvCells(row: string): string[] | undefined {
  const cells = [...`,${row}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^",]*))/g)];
  if (cells.map(([cell]) => cell).join("") !== `,${row}`) return undefined;
  return cells.map(([, quoted, plain = ""]) => quoted?.replaceAll('""', '"') ?? plain);
}
