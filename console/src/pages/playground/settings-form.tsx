import { Columns3, X } from "lucide-react";
import { Link } from "wouter";
import type { Model } from "../../../../src/api/model.ts";
import type { Selectable } from "../../api/queries.ts";
import { formatCount } from "../../format/numbers.ts";
import { Button, IconButton } from "../../ui/button.tsx";
import { Field, SelectField, TextField } from "../../ui/field.tsx";
import { Note, Skeleton } from "../../ui/states.tsx";
import { Pick } from "../pick.tsx";
import { maxTokensError, type Settings, schemaError, toolsError } from "./settings.ts";
import { COLUMNS_MAX } from "./store.ts";

/** Source of the charged organization: selected here, implied by the session, or none exists. */
export type Payer = "selected" | "implied" | "none";

/** Organizations that can be charged. */
export const PAYER_FILTER = { status: "active" };
export const canPay = ({ kind }: Selectable) => kind === "standard";

interface SettingsFormProps {
  settings: Settings;
  onSettings: (changes: Partial<Settings>) => void;
  models: readonly Model[] | undefined;
  /** The chosen models by the keys of their columns; "" for none. */
  chosen: readonly { key: number; model: string }[];
  onModel: (key: number, model: string) => void;
  onAdd: () => void;
  /** False while an answer is generated, which another column cannot continue. */
  canAdd: boolean;
  onRemove: (key: number) => void;
  /** Maximum of `max_tokens`; null until it is known. */
  maxTokens: number | null;
  payer: Payer;
  organizationId: string | null;
  onOrganization: (id: string) => void;
}

const SETTINGS_ID = "playground-settings";

/** Focuses the field for the organization that is charged, which is below the window on a narrow screen. */
export function focusPayer(): void {
  document.getElementById(SETTINGS_ID)?.querySelector<HTMLElement>("[role=combobox]")?.focus();
}

export function SettingsForm(props: SettingsFormProps) {
  const { settings, onSettings, maxTokens, payer, organizationId, onOrganization } = props;
  return (
    <section id={SETTINGS_ID} className="playground-settings card" aria-label="Settings">
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
      <ModelFields {...props} />
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
      <details>
        <summary>Tools and structured output</summary>
        <div className="stack-small">
          <JsonField
            label="Tools"
            hint="JSON list of functions with name, description and parameters. You type their results."
            placeholder={'[{"name": "get_weather", "parameters": {"type": "object"}}]'}
            error={toolsError(settings.tools)}
            value={settings.tools}
            onValue={(tools) => onSettings({ tools })}
          />
          <JsonField
            label="JSON schema"
            hint="The answer is JSON of this schema."
            placeholder={'{"type": "object", "properties": {}}'}
            error={schemaError(settings.schema)}
            value={settings.schema}
            onValue={(schema) => onSettings({ schema })}
          />
        </div>
      </details>
    </section>
  );
}

/** Fields for the models that answer side by side. */
function ModelFields({ models, chosen, onModel, onAdd, canAdd, onRemove }: SettingsFormProps) {
  if (models === undefined) return <Skeleton height="3.4rem" />;
  const options = models.map(({ id }) => [id, id] as const);
  return (
    <>
      {chosen.map(({ key, model }, index) => (
        <div key={key} className="playground-model">
          <SelectField
            label={index === 0 ? "Model" : `Model ${index + 1}`}
            hint={models.find(({ id }) => id === model)?.pricing}
            value={model}
            options={[...(model === "" ? [["", "Select a model"] as const] : []), ...options]}
            onValue={(id) => onModel(key, id)}
          />
          {index > 0 && <IconButton icon={X} label={`Remove model ${index + 1}`} onClick={() => onRemove(key)} />}
        </div>
      ))}
      {chosen.length < COLUMNS_MAX && models.length > 1 && (
        <div>
          <Button icon={Columns3} onClick={onAdd} disabled={!canAdd}>
            Compare with another model
          </Button>
        </div>
      )}
    </>
  );
}

interface JsonFieldProps {
  label: string;
  hint: string;
  placeholder: string;
  error: string | null;
  value: string;
  onValue: (text: string) => void;
}

function JsonField({ label, hint, placeholder, error, value, onValue }: JsonFieldProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(attributes) => (
        <textarea
          {...attributes}
          className="mono"
          rows={5}
          spellCheck={false}
          placeholder={placeholder}
          value={value}
          onChange={(event) => onValue(event.target.value)}
        />
      )}
    </Field>
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
            // In the middle without a value: at an end it would look like one.
            value={value ?? 0.5}
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
