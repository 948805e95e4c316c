import { useQuery } from "@tanstack/react-query";
import { models as catalogQuery, serviceFacts } from "../api/queries.ts";
import type { Limits } from "../api/types.ts";
import { formatCount } from "../format/numbers.ts";
import { Checks, Segments, SelectField, TextField } from "../ui/field.tsx";
import { LIMITS } from "./limits-label.ts";
import type { LimitTexts } from "./read-form.ts";

const CHOICES = [
  ["never", "Never"],
  ["7", "In 7 days"],
  ["30", "In 30 days"],
  ["90", "In 90 days"],
  ["365", "In 1 year"],
  ["date", "On a date"],
] as const;
export type ExpiryChoice = (typeof CHOICES)[number][0];

interface ExpiryFieldsProps {
  label: string;
  choice: ExpiryChoice;
  day: string;
  error?: string | null;
  onChoice: (choice: ExpiryChoice) => void;
  onDay: (day: string) => void;
}

export function ExpiryFields({ label, choice, day, error, onChoice, onDay }: ExpiryFieldsProps) {
  return (
    <div className="fields">
      <SelectField label={label} value={choice} options={CHOICES} onValue={onChoice} />
      {choice === "date" && <TextField label="Last day (UTC)" type="date" value={day} error={error} onValue={onDay} />}
    </div>
  );
}

interface LimitsFieldsProps {
  texts: LimitTexts;
  wrong?: { name: keyof Limits; error: string } | undefined;
  /** In place of the one that a blank field means the default. */
  hint?: string;
  onTexts: (texts: LimitTexts) => void;
}

/** Fields for limits. A blank field shows the default as its placeholder, unless there is another hint. */
export function LimitsFields({ texts, wrong, hint, onTexts }: LimitsFieldsProps) {
  const service = useQuery(serviceFacts);
  const usual = hint === undefined ? service.data?.default_limits : undefined;
  return (
    <fieldset className="stack-small">
      <legend className="legend-title">Limits</legend>
      <div className="fields">
        {LIMITS.map(({ name, label }) => (
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
      <p className="hint">{hint ?? "Leave blank for the default."}</p>
    </fieldset>
  );
}

interface ModelChoiceProps {
  /** Null: all. */
  models: ReadonlySet<string> | null;
  /** The only models that can be selected; null: those of the catalog. */
  offered: readonly string[] | null;
  error: string | undefined;
  onModels: (models: ReadonlySet<string> | null) => void;
}

export function ModelChoice({ models, offered, error, onModels }: ModelChoiceProps) {
  const catalog = useQuery(catalogQuery);
  // Models that are no longer offered may have been selected.
  const ids = new Set([...(offered ?? (catalog.data?.data ?? []).map(({ id }) => id)), ...(models ?? [])]);
  return (
    <div className="field">
      <span className="legend-title">Models</span>
      <Segments
        label="Models"
        value={models === null ? "all" : "some"}
        options={[
          ["all", offered === null ? "All models, including new ones" : "All allowed models"],
          ["some", "Selected models"],
        ]}
        onValue={(which) => onModels(which === "all" ? null : new Set())}
      />
      {models !== null && (
        <Checks
          label="Selected models"
          isLong
          options={[...ids].map((id) => [id, id] as const)}
          chosen={models}
          onChosen={onModels}
        />
      )}
      {error && <p className="field-error">{error}</p>}
    </div>
  );
}
