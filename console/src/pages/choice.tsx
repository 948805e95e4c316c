interface ChoiceProps {
  label: string;
  /** What it says where nothing is chosen. */
  all: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onValue: (value: string) => void;
}

/** One of a list, or all. What is chosen stays to be seen where the list does not hold it. */
export function Choice({ label, all, value, options, onValue }: ChoiceProps) {
  const isListed = value === "" || options.some(([option]) => option === value);
  return (
    <select className="filter" aria-label={label} value={value} onChange={(event) => onValue(event.target.value)}>
      <option value="">{all}</option>
      {!isListed && <option value={value}>{value}</option>}
      {options.map(([option, text]) => (
        <option key={option} value={option}>
          {text}
        </option>
      ))}
    </select>
  );
}
