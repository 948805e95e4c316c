import { useQuery } from "@tanstack/react-query";
import { serviceFacts } from "../api/queries.ts";
import type { Limits } from "../api/types.ts";
import { countOf, formatCount } from "../format/numbers.ts";
import { TextField } from "../ui/field.tsx";
import type { LimitTexts } from "./read-form.ts";

/** What each limits, in a unit of time or at one. */
const NAMES: [keyof Limits, unit: "request" | "token", during: string][] = [
  ["requests_per_minute", "request", "a minute"],
  ["tokens_per_minute", "token", "a minute"],
  ["concurrent_requests", "request", "at once"],
];
const LABELS = { request: "Requests", token: "Tokens" };

interface LimitsFieldsProps {
  texts: LimitTexts;
  wrong?: { name: keyof Limits; error: string } | undefined;
  onTexts: (texts: LimitTexts) => void;
}

/** Limits of one's own; an empty field is the service's limit, which it shows. */
export function LimitsFields({ texts, wrong, onTexts }: LimitsFieldsProps) {
  const service = useQuery(serviceFacts);
  const usual = service.data?.default_limits;
  return (
    <fieldset className="stack-small">
      <legend className="legend-title">Limits</legend>
      <div className="fields">
        {NAMES.map(([name, unit, during]) => (
          <TextField
            key={name}
            label={`${LABELS[unit]} ${during}`}
            inputMode="numeric"
            placeholder={usual === undefined ? "" : formatCount(usual[name])}
            value={texts[name]}
            error={wrong?.name === name ? wrong.error : null}
            onValue={(text) => onTexts({ ...texts, [name]: text })}
          />
        ))}
      </div>
      <p className="hint">Where a field is empty, the service's own limit holds.</p>
    </fieldset>
  );
}

/** Limits in words. */
export function limitsInWords(limits: Limits | null): string {
  const words = NAMES.flatMap(([name, unit, during]) => {
    const value = limits?.[name];
    return value === undefined ? [] : [`${countOf(value, unit)} ${during}`];
  });
  return words.length === 0 ? "the service's" : words.join(", ");
}
