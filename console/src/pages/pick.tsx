import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { choices, chosen, type Selectable } from "../api/queries.ts";
import { type Option, Picker, type PickerProps } from "../ui/picker.tsx";
import { useDebounced } from "../ui/search-field.tsx";

interface PickProps {
  what: "organizations" | "tokens";
  /** Query parameters of the list. */
  filter?: Record<string, string>;
  /** Excludes options. By default all are offered. */
  accepts?: (choice: Selectable) => boolean;
  attributes: PickerProps["attributes"];
  /** Text of a first option that clears the selection. */
  all?: string;
  /** Placeholder while nothing is selected. */
  placeholder?: string;
  value: string;
  onValue: (id: string) => void;
}

/** Picker for an organization or a token. The service does the searching. */
export function Pick({
  what,
  filter = {},
  accepts = () => true,
  attributes,
  all,
  placeholder,
  value,
  onValue,
}: PickProps) {
  const client = useQueryClient();
  const [search, setSearch] = useState<string | null>(null);
  const debounced = useDebounced(search ?? "");
  const found = useQuery({
    ...choices(what, { ...filter, search: debounced }),
    enabled: search !== null,
    placeholderData: keepPreviousData,
  });
  const named = useQuery({ ...chosen(what, value), enabled: value !== "" });
  const options = found.data?.data.filter(accepts).map(({ id, name }): Option => ({ value: id, text: name, note: id }));
  const choose = (id: string) => {
    const choice = found.data?.data.find((one) => one.id === id);
    if (choice !== undefined) client.setQueryData(chosen(what, id).queryKey, choice);
    onValue(id);
  };
  return (
    <Picker
      attributes={attributes}
      value={value}
      // An unknown ID is shown as it is, so that a filter from the URL stays visible.
      text={value === "" ? "" : (named.data?.name ?? (named.isPending ? "…" : value))}
      placeholder={all ?? placeholder ?? "Select …"}
      options={all !== undefined && debounced === "" && options ? [{ value: "", text: all }, ...options] : options}
      isStale={search !== debounced || found.isPlaceholderData}
      hasMore={found.data?.next_cursor != null}
      onSearch={setSearch}
      onValue={choose}
    />
  );
}

interface OrganizationFilterProps {
  value: string;
  onValue: (organizationId: string) => void;
}

/** Filter for one organization or all. */
export function OrganizationFilter({ value, onValue }: OrganizationFilterProps) {
  const attributes = { "aria-label": "Organization" };
  return <Pick what="organizations" attributes={attributes} all="All organizations" value={value} onValue={onValue} />;
}
