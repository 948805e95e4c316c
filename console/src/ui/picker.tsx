import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";

export interface Option {
  value: string;
  text: string;
  /** Additional text that distinguishes options of the same name. */
  note?: string;
}

export interface PickerProps {
  /** Attributes that connect the field to label, hint and error. */
  attributes: { id?: string; "aria-label"?: string; "aria-describedby"?: string; "aria-invalid"?: true };
  value: string;
  /** Text of the selected option; empty if there is none. */
  text: string;
  placeholder: string;
  /** Options that match the search; undefined while they load. */
  options: readonly Option[] | undefined;
  /** True while the options belong to an earlier search. */
  isStale: boolean;
  /** True if more options match than are offered. */
  hasMore: boolean;
  /** Receives the search text; null when the list closes. */
  onSearch: (search: string | null) => void;
  onValue: (value: string) => void;
}

const NONE = -1;

/** Combobox for one of many options, which are searched by name. Follows the ARIA Authoring Practices. */
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
  // Selects the whole text, so that typing replaces it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs again when the selected option changes
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

/** State of a picker: typed text (undefined before typing), active option, and keyboard handling. */
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
    // Typing activates the first match.
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
    // biome-ignore lint/a11y/noStaticElementInteractions: it only keeps the focus in the field
    <div className="picker-pop" onMouseDown={(event) => event.preventDefault()}>
      {count > 0 && (
        <div id={listId} role="listbox" aria-label={attributes["aria-label"] ?? "Matches"} aria-busy={isStale}>
          {options?.map((option, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the field handles the keys
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
        {matchesLabel(options, hasMore)}
      </p>
    </div>
  );
}

function matchesLabel(options: readonly Option[] | undefined, hasMore: boolean): string {
  if (options === undefined) return "Searching …";
  if (options.length === 0) return "No matches.";
  return hasMore
    ? "More matches. Type more to narrow the list."
    : `${options.length} ${options.length === 1 ? "match" : "matches"}`;
}
