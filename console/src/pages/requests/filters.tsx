import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { models } from "../../api/queries.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Choice } from "../filters.tsx";
import { OrganizationFilter, Pick } from "../pick.tsx";
import { STATUS_LABELS } from "./status.tsx";

export const NAMES = ["organization_id", "token_id", "model", "status", "request_id", "since"] as const;
type Name = (typeof NAMES)[number];
type Values = Record<Name, string>;

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const SINCE = [
  ["1", "Last hour"],
  ["24", "Last 24 hours"],
  ["168", "Last 7 days"],
] as const;

/** Returns the start of the period, rounded down to the minute so that the query key stays the same in between. */
export function fromOf(since: string, nowMs: number): string | undefined {
  const hours = Number(since);
  if (!SINCE.some(([value]) => value === since)) return undefined;
  return new Date(Math.floor((nowMs - hours * HOUR_MS) / MINUTE_MS) * MINUTE_MS).toISOString();
}

export const isFiltered = (values: Values) => Object.values(values).some((value) => value !== "");

interface FiltersProps {
  values: Values;
  onValues: (changes: Partial<Values>) => void;
}

export function Filters({ values, onValues }: FiltersProps) {
  const { organization } = useSession();
  const { isServiceWide } = useAccess();
  const catalog = useQuery(models);
  const organizationId = organization?.id ?? values.organization_id;
  return (
    <search className="toolbar" aria-label="Filter requests">
      <SearchField label="Request ID" value={values.request_id} onValue={(request_id) => onValues({ request_id })} />
      {isServiceWide && (
        <OrganizationFilter
          value={values.organization_id}
          onValue={(organization_id) => onValues({ organization_id, token_id: "" })}
        />
      )}
      {(organizationId !== "" || values.token_id !== "") && (
        <Pick
          what="tokens"
          filter={{ organization_id: organizationId }}
          attributes={{ "aria-label": "Token" }}
          all="All tokens"
          value={values.token_id}
          onValue={(token_id) => onValues({ token_id })}
        />
      )}
      <Choice
        label="Model"
        all="All models"
        value={values.model}
        options={(catalog.data?.data ?? []).map(({ id }) => [id, id] as const)}
        onValue={(model) => onValues({ model })}
      />
      <Choice
        label="Status"
        all="All statuses"
        value={values.status}
        options={Object.entries(STATUS_LABELS)}
        onValue={(status) => onValues({ status })}
      />
      <Choice
        label="Time"
        all="All time"
        value={values.since}
        options={SINCE}
        onValue={(since) => onValues({ since })}
      />
      {isFiltered(values) && (
        <Button
          look="quiet"
          icon={X}
          onClick={() => onValues(Object.fromEntries(NAMES.map((name) => [name, ""])) as Values)}
        >
          Clear filters
        </Button>
      )}
    </search>
  );
}
