/** What comes before every UUIDv7 of a millisecond (RFC 9562, section 5.7: the first 48 bits). */
export function firstIdAt(milliseconds: number): string {
  const hex = Math.max(0, milliseconds).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}
