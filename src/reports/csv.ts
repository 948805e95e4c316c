const NUMBER = /^-?\d+(\.\d+)?$/;

/** Formats a row of comma-separated values, without the line feed. Lines end with CRLF (RFC 4180); the caller adds the line feed. */
export function csvRow(cells: readonly string[]): string {
  return `${cells.map(csvCell).join(",")}\r`;
}

/** Quotes a cell if necessary. A text that a spreadsheet would read as a formula gets a leading apostrophe. */
function csvCell(text: string): string {
  const isFormula = /^[\s]*[=+\-@\t\r]/.test(text) && !NUMBER.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
