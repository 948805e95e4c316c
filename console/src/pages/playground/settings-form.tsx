import { Link } from "wouter";
import type { Model } from "../../../../src/api/model.ts";
import type { Selectable } from "../../api/queries.ts";
import { formatCount } from "../../format/numbers.ts";
import { Field, SelectField, TextField } from "../../ui/field.tsx";
import { Note, Skeleton } from "../../ui/states.tsx";
import { Pick } from "../pick.tsx";
import { maxTokensError, type Settings } from "./settings.ts";

/** Source of the charged organization: selected here, implied by the session, or none exists. */
export type Payer = "selected" | "implied" | "none";

/** Organizations that can be charged. */
export const PAYER_FILTER = { status: "active" };
export const canPay = ({ kind }: Selectable) => kind === "standard";

interface SettingsFormProps {
  settings: Settings;
  onSettings: (changes: Partial<Settings>) => void;
  models: readonly Model[] | undefined;
  /** Maximum of `max_tokens`; null until it is known. */
  maxTokens: number | null;
  payer: Payer;
  organizationId: string | null;
  onOrganization: (id: string) => void;
}

export function SettingsForm(props: SettingsFormProps) {
  const { settings, onSettings, models, maxTokens, payer, organizationId, onOrganization } = props;
  const model = models?.find(({ id }) => id === settings.model);
  return (
    <section className="playground-settings card" aria-label="Settings">
      {payer === "none" && <NoPayer />}
      {payer === "selected" && (
        <Field label="Charged to" hint={organizationId === null ? "Its credits pay for the answers." : null}>
          {(attributes) => (
            <Pick
              what="organizations"
              filter={PAYER_FILTER}
              accepts={canPay}
              placeholder="Select an organization"
              attributes={attributes}
              value={organizationId ?? ""}
              onValue={onOrganization}
            />
          )}
        </Field>
      )}
      {models === undefined ? (
        <Skeleton height="3.4rem" />
      ) : (
        <SelectField
          label="Model"
          hint={model?.pricing}
          value={settings.model}
          options={[
            ...(settings.model === "" ? [["", "Select a model"] as const] : []),
            ...models.map(({ id }) => [id, id] as const),
          ]}
          onValue={(id) => onSettings({ model: id })}
        />
      )}
      <Field label="Instructions" hint="Sent before the conversation.">
        {(attributes) => (
          <textarea
            {...attributes}
            rows={4}
            placeholder="Answer in one sentence."
            value={settings.instructions}
            onChange={(event) => onSettings({ instructions: event.target.value })}
          />
        )}
      </Field>
      <Temperature value={settings.temperature} onValue={(temperature) => onSettings({ temperature })} />
      <TextField
        label="Max output tokens"
        hint="max_tokens. Leave blank for the most that the model and the credits allow."
        inputMode="numeric"
        placeholder={maxTokens === null ? "" : `1 to ${formatCount(maxTokens)}`}
        value={settings.maxTokens}
        error={maxTokensError(settings.maxTokens, maxTokens)}
        onValue={(text) => onSettings({ maxTokens: text.trim() })}
      />
    </section>
  );
}

function NoPayer() {
  return (
    <Note tone="warn">
      <p>
        Answers are charged to an organization. <Link href="/organizations">Create one</Link> first.
      </p>
    </Note>
  );
}

const STEP = 0.05;

function Temperature({ value, onValue }: { value: number | null; onValue: (value: number | null) => void }) {
  return (
    <div className="stack-small">
      <Field
        label={`Temperature${value === null ? "" : `: ${value}`}`}
        hint={value === null ? "The default of the model applies." : "Lower is more consistent, higher is more varied."}
      >
        {(attributes) => (
          <input
            {...attributes}
            type="range"
            min={0}
            max={1}
            step={STEP}
            value={value ?? 1}
            disabled={value === null}
            onChange={(event) => onValue(Number(event.target.value))}
          />
        )}
      </Field>
      <label className="check small">
        <input
          type="checkbox"
          checked={value === null}
          onChange={(event) => onValue(event.target.checked ? null : 1)}
        />
        Use the default
      </label>
    </div>
  );
}
