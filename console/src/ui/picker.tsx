import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";

export interface Option {
  value: string;
  text: string;
  /** What tells it apart from others of its name. */
  note?: string;
}

export interface PickerProps {
  /** What ties it to its label, its hint and its error. */
  attributes: { id?: string; "aria-label"?: string; "aria-describedby"?: string; "aria-invalid"?: true };
  value: string;
  /** What is chosen, in words; empty where nothing is. */
  text: string;
  placeholder: string;
  /** What fits what is searched for. Undefined: on its way. */
  options: readonly Option[] | undefined;
  /** Whether the options are still those of what was searched for before. */
  isStale: boolean;
  /** Whether more fit than are offered. */
  hasMore: boolean;
  /** Null: closed, nothing is searched for. */
  onSearch: (search: string | null) => void;
  onValue: (value: string) => void;
}

const NONE = -1;

/** One of many, found by typing a part of its name: a combobox, as the ARIA Authoring Practices have it. */
export function Picker(props: PickerProps) {
  const { attributes, text, placeholder, options } = props;
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const { isOpen, typed, active, open, close, choose, onKeyDown } = usePicker(props);
  const optionId = (index: number) => `${id}-${index}`;
  const hasList = isOpen && options !== undefined && options.length > 0;
  useEffect(() => {
    if (isOpen) document.getElementById(`${id}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [id, isOpen, active]);
  // What is chosen is marked whole, so that what is typed next takes its place.
  // biome-ignore lint/correctness/useExhaustiveDependencies: marked anew when another one is chosen
  useEffect(() => {
    if (!isOpen && document.activeElement === field.current) field.current?.select();
  }, [isOpen, text]);
  return (
    <div className="picker">
      <input
        ref={field}
        {...attributes}
        type="text"
        role="combobox"
        autoComplete="off"
        spellCheck={false}
        aria-autocomplete="list"
        aria-expanded={hasList}
        aria-controls={hasList ? `${id}-list` : undefined}
        aria-activedescendant={hasList && active !== NONE ? optionId(active) : undefined}
        placeholder={placeholder}
        value={typed ?? text}
        onChange={(event) => open(event.target.value)}
        onClick={(event) => {
          if (!isOpen) event.currentTarget.select();
          open();
        }}
        onBlur={close}
        onKeyDown={onKeyDown}
      />
      {isOpen && <PickerList {...props} listId={`${id}-list`} optionId={optionId} active={active} onChoose={choose} />}
    </div>
  );
}

/** What is typed (undefined: nothing yet), which option the arrow keys are at, and what the keys do. */
function usePicker({ value, options, isStale, onSearch, onValue }: PickerProps) {
  const [isOpen, setOpen] = useState(false);
  const [typed, setTyped] = useState<string>();
  const [at, setAt] = useState(NONE);
  const count = options?.length ?? 0;
  const active = Math.min(at, count - 1);
  const open = (search?: string) => {
    if (isOpen && search === undefined) return;
    setOpen(true);
    setTyped(search);
    // What was typed is meant for the first that fits it.
    setAt(search === undefined ? (options ?? []).findIndex((option) => option.value === value) : 0);
    onSearch(search?.trim() ?? "");
  };
  const close = () => {
    setOpen(false);
    setTyped(undefined);
    onSearch(null);
  };
  const choose = (option: Option) => {
    close();
    onValue(option.value);
  };
  const move = (step: 1 | -1) => {
    if (!isOpen) open();
    else if (count > 0) setAt(active === NONE && step < 0 ? count - 1 : (active + step + count) % count);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") move(key === "ArrowDown" ? 1 : -1);
    else if (isOpen && key === "Enter") {
      const option = isStale ? undefined : options?.[active];
      if (option !== undefined) choose(option);
    } else if (isOpen && key === "Escape") close();
    else return;
    event.preventDefault();
  };
  return { isOpen, typed, active, open, close, choose, onKeyDown };
}

interface PickerListProps extends PickerProps {
  listId: string;
  optionId: (index: number) => string;
  active: number;
  onChoose: (option: Option) => void;
}

function PickerList({ options, value, isStale, hasMore, attributes, ...list }: PickerListProps) {
  const { listId, optionId, active, onChoose } = list;
  const count = options?.length ?? 0;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only keeps a press from taking the focus from the field
    <div className="picker-pop" onMouseDown={(event) => event.preventDefault()}>
      {count > 0 && (
        <div id={listId} role="listbox" aria-label={attributes["aria-label"] ?? "Matches"} aria-busy={isStale}>
          {options?.map((option, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the field, which keeps the focus
            <div
              key={option.value}
              id={optionId(index)}
              role="option"
              tabIndex={-1}
              aria-selected={option.value === value}
              className={index === active ? "picker-option picker-active" : "picker-option"}
              onClick={() => onChoose(option)}
            >
              <span className="wrap-anywhere">{option.text}</span>
              {option.note && <span className="mono faint wrap-anywhere">{option.note}</span>}
            </div>
          ))}
        </div>
      )}
      <p role="status" className={count > 0 && !hasMore ? "visually-hidden" : "picker-note small faint"}>
        {told(options, hasMore)}
      </p>
    </div>
  );
}

function told(options: readonly Option[] | undefined, hasMore: boolean): string {
  if (options === undefined) return "Searching …";
  if (options.length === 0) return "No matches.";
  return hasMore
    ? "More matches. Type more to narrow the list."
    : `${options.length} ${options.length === 1 ? "match" : "matches"}`;
}
