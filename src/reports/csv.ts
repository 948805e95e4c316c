const NUMBER = /^-?\d+(\.\d+)?$/;

/** Formats a row of comma-separated values, without the line feed. Lines end with CRLF (RFC 4180); the caller adds the line feed. */
export function csvRow(cells: readonly string[]): string {
  return `${cells.map(csvCell).join(",")}\r`;
}

interface LineFormat<Row> {
  head: string;
  line: (row: Row) => string;
}

/** Returns the formats of an export: comma-separated values with these columns, and JSON Lines. */
export function lineFormats<Row>(columns: readonly string[], cellsOf: (row: Row) => Record<string, unknown>) {
  const csvLine = (row: Row) => {
    const cells = cellsOf(row);
    return `${csvRow(columns.map((name) => String(cells[name] ?? "")))}\n`;
  };
  return {
    csv: { head: `${csvRow(columns)}\n`, line: csvLine },
    jsonl: { head: "", line: (row: Row) => `${JSON.stringify(row)}\n` },
  };
}

/** Yields the rows of all pages as lines. Reads each page when the consumer asks for it. */
export async function* exportLines<Row>(
  { head, line }: LineFormat<Row>,
  read: (cursor: string | null) => Promise<{ data: readonly Row[]; next_cursor: string | null }>,
): AsyncGenerator<string> {
  let cursor: string | null = null;
  let text = head;
  do {
    const page = await read(cursor);
    cursor = page.next_cursor;
    yield text + page.data.map(line).join("");
    text = "";
  } while (cursor !== null);
}

/** Quotes a cell if necessary. A text that a spreadsheet would read as a formula gets a leading apostrophe. */
function csvCell(text: string): string {
  const isFormula = /^[\s]*[=+\-@\t\r]/.test(text) && !NUMBER.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
