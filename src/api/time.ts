const TIME = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** A day (from 00:00 UTC on) or a time of ISO 8601 in milliseconds since 1970; undefined for what is neither. */
export function parseTime(text: string): number | undefined {
  if (!TIME.test(text)) return undefined;
  const timeMs = Date.parse(text);
  // Date.parse takes the 30th of February for the 1st of March.
  const day = Date.parse(text.slice(0, 10));
  const isDay = !Number.isNaN(day) && new Date(day).toISOString().startsWith(text.slice(0, 10));
  return isDay && !Number.isNaN(timeMs) ? timeMs : undefined;
}
