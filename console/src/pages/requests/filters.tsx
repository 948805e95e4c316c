import { useQuery } from "@tanstack/react-query";
import { SlidersHorizontal, X } from "lucide-react";
import { useState } from "react";
import { budgets, models } from "../../api/queries.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { useNow } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";
import { PeriodChoice } from "../period.tsx";
import { OrganizationFilter, Pick } from "../pick.tsx";
import { STATUS_LABELS } from "./status.tsx";
import { FILTER_NAMES, type FilterName, type View } from "./view.ts";

const RANGES = [
  ["", "All time"],
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["1", "Today"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
] as const;
const MORE: readonly FilterName[] = ["failure", "route", "budget_id", "metadata_key", "metadata_value", "charged_min"];

export const isFiltered = (view: View) => FILTER_NAMES.some((name) => view[name] !== "");

interface FiltersProps {
  view: View;
  onView: (changes: Partial<View>) => void;
}

export function Filters({ view, onView }: FiltersProps) {
  const { organization } = useSession();
  const { isServiceWide } = useAccess();
  const [isOpen, setOpen] = useState(false);
  const catalog = useQuery(models);
  const nowMs = useNow();
  const organizationId = organization?.id ?? view.organization_id;
  const hasMore = isOpen || MORE.some((name) => view[name] !== "");
  return (
    <search className="toolbar" aria-label="Filter requests">
      <SearchField label="Request ID" value={view.request_id} onValue={(request_id) => onView({ request_id })} />
      {isServiceWide && (
        <OrganizationFilter
          value={view.organization_id}
          onValue={(organization_id) => onView({ organization_id, token_id: "", budget_id: "" })}
        />
      )}
      {(organizationId !== "" || view.token_id !== "") && (
        <Pick
          what="tokens"
          filter={{ organization_id: organizationId }}
          attributes={{ "aria-label": "Token" }}
          all="All tokens"
          value={view.token_id}
          onValue={(token_id) => onView({ token_id })}
        />
      )}
      <Choice
        label="Model"
        all="All models"
        value={view.model}
        options={(catalog.data?.data ?? []).map(({ id }) => [id, id] as const)}
        onValue={(model) => onView({ model })}
      />
      <Choice
        label="Status"
        all="All statuses"
        value={view.status}
        options={Object.entries(STATUS_LABELS)}
        onValue={(status) => onView({ status })}
      />
      <PeriodChoice value={view.period} ranges={RANGES} nowMs={nowMs} onValue={(period) => onView({ period })} />
      <Button icon={SlidersHorizontal} aria-expanded={hasMore} onClick={() => setOpen(!hasMore)}>
        More filters
      </Button>
      {hasMore && <MoreFilters view={view} organizationId={organizationId} onView={onView} />}
    </search>
  );
}

/** Button that removes every filter; nothing where there is none. */
export function ClearFilters({ view, onView }: FiltersProps) {
  if (!isFiltered(view)) return null;
  const none = Object.fromEntries(FILTER_NAMES.map((name) => [name, ""])) as Partial<View>;
  return (
    <Button look="quiet" icon={X} onClick={() => onView(none)}>
      Clear filters
    </Button>
  );
}

const CREDITS = /^\d{0,9}(\.\d{0,6})?$/;

function MoreFilters({ view, organizationId, onView }: FiltersProps & { organizationId: string }) {
  const field = (label: string, name: FilterName) => (
    <SearchField label={label} value={view[name]} onValue={(value) => onView({ [name]: value })} />
  );
  return (
    <div className="toolbar toolbar-more">
      {field("Error code", "failure")}
      {field("Route", "route")}
      {(organizationId !== "" || view.budget_id !== "") && (
        <BudgetFilter organizationId={organizationId} value={view.budget_id} onView={onView} />
      )}
      {field("Metadata key", "metadata_key")}
      {field("Metadata value", "metadata_value")}
      <SearchField
        label="Minimum charge in credits"
        value={view.charged_min}
        onValue={(value) => CREDITS.test(value) && onView({ charged_min: value })}
      />
    </div>
  );
}

function BudgetFilter({
  organizationId,
  value,
  onView,
}: {
  onView: FiltersProps["onView"];
  organizationId: string;
  value: string;
}) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/budgets`;
  const found = useQuery({ ...budgets(path), enabled: organizationId !== "" });
  const options = (found.data?.data ?? []).map(({ id, name }) => [id, name] as const);
  return (
    <Choice
      label="Budget"
      all="All budgets"
      value={value}
      options={options}
      onValue={(budget_id) => onView({ budget_id })}
    />
  );
}
