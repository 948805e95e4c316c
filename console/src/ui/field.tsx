import { type ComponentProps, type ReactNode, useId } from "react";

interface FieldProps {
  label: string;
  hint?: ReactNode;
  /** Error of the current value. */
  error?: string | null;
  /** Renders the control with the attributes that connect it to label, hint and error. */
  children: (attributes: { id: string; "aria-describedby"?: string; "aria-invalid"?: true }) => ReactNode;
}

export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        ...(described !== "" && { "aria-describedby": described }),
        ...(error && { "aria-invalid": true }),
      })}
      {hint && (
        <p id={`${id}-hint`} className="hint">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} className="field-error">
          {error}
        </p>
      )}
    </div>
  );
}

type TextFieldProps = Omit<ComponentProps<"input">, "onChange" | "children"> &
  Omit<FieldProps, "children"> & { onValue: (value: string) => void };

export function TextField({ label, hint, error, onValue, ...rest }: TextFieldProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(attributes) => (
        <input
          type="text"
          autoComplete="off"
          {...rest}
          {...attributes}
          onChange={(event) => onValue(event.target.value)}
        />
      )}
    </Field>
  );
}

interface SelectFieldProps<T extends string> extends Omit<FieldProps, "children"> {
  value: T;
  options: readonly (readonly [value: T, label: string])[];
  onValue: (value: T) => void;
  disabled?: boolean;
}

export function SelectField<T extends string>({ label, hint, error, value, options, ...rest }: SelectFieldProps<T>) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(attributes) => (
        <select
          {...attributes}
          value={value}
          disabled={rest.disabled}
          onChange={(event) => rest.onValue(event.target.value as T)}
        >
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface ChecksProps<T extends string> {
  label: string;
  hint?: ReactNode;
  options: readonly (readonly [value: T, label: ReactNode])[];
  chosen: ReadonlySet<T>;
  onChosen: (chosen: Set<T>) => void;
  /** Shows the options in a scrolling box, with a hidden legend. */
  isLong?: boolean;
}

/** Group of checkboxes. */
export function Checks<T extends string>({ label, hint, options, chosen, onChosen, isLong }: ChecksProps<T>) {
  const toggle = (value: T) => {
    const next = new Set(chosen);
    if (!next.delete(value)) next.add(value);
    onChosen(next);
  };
  return (
    <fieldset className="field">
      <legend className={isLong ? "visually-hidden" : undefined}>{label}</legend>
      <div className={isLong ? "checks-list" : "checks"}>
        {options.map(([value, text]) => (
          <label key={value} className="check">
            <input type="checkbox" checked={chosen.has(value)} onChange={() => toggle(value)} />
            <span>{text}</span>
          </label>
        ))}
      </div>
      {hint && <p className="hint">{hint}</p>}
    </fieldset>
  );
}

interface SegmentsProps<T extends string> {
  label: string;
  value: T;
  options: readonly (readonly [value: T, label: string])[];
  onValue: (value: T) => void;
}

/** Radio group in the form of a segmented control. */
export function Segments<T extends string>({ label, value, options, onValue }: SegmentsProps<T>) {
  const name = useId();
  return (
    <fieldset className="segments" title={label}>
      <legend className="visually-hidden">{label}</legend>
      {options.map(([option, text]) => (
        <label key={option} className="segment">
          <input type="radio" name={name} checked={option === value} onChange={() => onValue(option)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}
