import { useQuery } from "@tanstack/react-query";
import { serviceFacts } from "../api/queries.ts";
import type { Limits } from "../api/types.ts";
import { formatCount } from "../format/numbers.ts";
import { TextField } from "../ui/field.tsx";
import type { LimitTexts } from "./read-form.ts";

const NAMES: [keyof Limits, string][] = [
  ["requests_per_minute", "Requests a minute"],
  ["tokens_per_minute", "Tokens a minute"],
  ["concurrent_requests", "Requests at once"],
];

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
        {NAMES.map(([name, label]) => (
          <TextField
            key={name}
            label={label}
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
  const words = NAMES.flatMap(([name, label]) => {
    const value = limits?.[name];
    return value === undefined ? [] : [`${formatCount(value)} ${label.toLowerCase()}`];
  });
  return words.length === 0 ? "the service's" : words.join(", ");
}
