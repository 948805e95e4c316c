import { SelectField, TextField } from "../ui/field.tsx";

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
      {choice === "date" && <TextField label="Date" type="date" value={day} error={error} onValue={onDay} />}
    </div>
  );
}
