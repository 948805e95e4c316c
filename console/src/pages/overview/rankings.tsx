import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Overview } from "../../api/types.ts";
import { ModelName, modelColors } from "../../charts/model-color.tsx";
import { formatCount, formatLasting } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Card } from "../../ui/page.tsx";
import { titleOfCode } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { RequestsLink } from "../requests/link.tsx";
import type { View } from "../requests/view.ts";
import { reportedCost } from "./figures.ts";

type Row<List extends "top_models" | "top_tokens" | "top_organizations"> = Overview[List][number];

type Counts = Pick<Overview["totals"], "requests" | "spent" | "provider_cost">;

/** Columns of a ranking. The bar under the spend is relative to the highest. */
function columnsOf<T extends Counts>(
  head: string,
  name: (row: T) => ReactNode,
  rows: readonly T[] | undefined,
): Column<T>[] {
  const most = Math.max(0, ...(rows ?? []).map(({ spent }) => spent));
  const hasCost = rows?.some((row) => reportedCost(row) !== null) ?? false;
  return [
    { head, cell: name },
    { head: "Requests", right: true, cell: ({ requests }) => formatCount(requests) },
    {
      head: "Spent",
      right: true,
      cell: ({ spent }) => (
        <>
          <Credits value={spent} />
          <span className="share">
            <span style={{ width: `${most > 0 ? (spent / most) * 100 : 0}%` }} />
          </span>
        </>
      ),
    },
    ...(hasCost ? [{ head: "Provider cost", right: true, cell: ProviderCost }] : []),
  ];
}

function ProviderCost(row: Counts) {
  const cost = reportedCost(row);
  if (cost === null) return "–";
  return (
    <span className="cell-two">
      <span>{cost.amount}</span>
      <span className="small faint nowrap">{cost.spent} charged</span>
    </span>
  );
}

export function Rankings({ figures, view }: { figures: Overview | undefined; view: Partial<View> }) {
  const { isServiceWide } = useAccess();
  const organizations = figures?.top_organizations ?? [];
  const colorOf = modelColors((figures?.top_models ?? []).map(({ model }) => model));
  return (
    <div className="columns">
      <Card title="Models" about="By spend in this period" flush>
        <Table
          caption="Top models"
          columns={columnsOf<Row<"top_models">>(
            "Model",
            ({ model }) => (
              <ModelName id={model} colorOf={colorOf}>
                <Behind view={{ ...view, model }} text={model} />
              </ModelName>
            ),
            figures?.top_models,
          )}
          rows={figures?.top_models}
          keyOf={({ model }) => model}
          empty={null}
        />
      </Card>
      <Card title="Tokens" about="By spend in this period" flush>
        <Table
          caption="Top tokens"
          columns={columnsOf<Row<"top_tokens">>(
            "Token",
            (row) => <Behind view={{ ...view, token_id: row.token_id }} text={row.name ?? row.token_id} />,
            figures?.top_tokens,
          )}
          rows={figures?.top_tokens}
          keyOf={({ token_id }) => token_id}
          empty={null}
        />
      </Card>
      {isServiceWide && organizations.length > 0 && (
        <Card title="Organizations" about="By spend in this period" flush>
          <Table
            caption="Top organizations"
            columns={columnsOf<Row<"top_organizations">>(
              "Organization",
              (row) => (
                <Behind
                  view={{ ...view, organization_id: row.organization_id }}
                  text={row.name ?? row.organization_id}
                />
              ),
              organizations,
            )}
            rows={organizations}
            keyOf={({ organization_id }) => organization_id}
            empty={null}
          />
        </Card>
      )}
    </div>
  );
}

type Ending = NonNullable<Overview["organizations"]>["ending"][number];

const ENDING_COLUMNS: readonly Column<Ending>[] = [
  { head: "Organization", cell: (row) => <OrganizationLink {...row} /> },
  { head: "Available", right: true, cell: ({ available }) => <Credits value={available} /> },
  { head: "Lasts", right: true, cell: ({ days_left }) => formatLasting(days_left) },
];

/** Organizations that are out of credits or will be within a week; nothing where there are none. */
export function EndingCredits({ organizations }: Pick<Overview, "organizations">) {
  if (organizations === null || organizations.ending.length === 0) return null;
  return (
    <Card title="Credits running out" about="Organizations whose credits last less than a week" flush>
      <Table
        caption="Organizations whose credits run out"
        columns={ENDING_COLUMNS}
        rows={organizations.ending}
        keyOf={({ organization_id }) => organization_id}
        empty={null}
      />
    </Card>
  );
}

type Refused = NonNullable<Overview["organizations"]>["refused"][number];

/** Organizations that were refused for credits in the period, with links to these requests; nothing where there are none. */
export function RefusedOrganizations({
  organizations,
  view,
}: Pick<Overview, "organizations"> & { view: Partial<View> }) {
  if (organizations === null || organizations.refused.length === 0) return null;
  const behind = { ...view, status: "refused", failure: "insufficient_credits" };
  const columns: Column<Refused>[] = [
    { head: "Organization", cell: (row) => <OrganizationLink {...row} /> },
    {
      head: "Requests",
      right: true,
      cell: ({ organization_id, requests }) => (
        <RequestsLink view={{ ...behind, organization_id }}>{formatCount(requests)}</RequestsLink>
      ),
    },
  ];
  return (
    <Card title="Refused for credits" about="Organizations whose credits did not cover a request in this period" flush>
      <Table
        caption="Organizations refused for credits"
        columns={columns}
        rows={organizations.refused}
        keyOf={({ organization_id }) => organization_id}
        empty={null}
      />
    </Card>
  );
}

type RefusalCount = Overview["refusals"][number];

/** Refused requests of the period by code; nothing where there are none. */
export function Refusals({ refusals, view }: Pick<Overview, "refusals"> & { view: Partial<View> }) {
  if (refusals.length === 0) return null;
  const columns: Column<RefusalCount>[] = [
    {
      head: "Reason",
      cell: ({ code }) => (
        <RequestsLink view={{ ...view, status: "refused", failure: code }}>
          {titleOfCode(code)} <span className="mono faint small">{code}</span>
        </RequestsLink>
      ),
    },
    { head: "Requests", right: true, cell: ({ requests }) => formatCount(requests) },
  ];
  return (
    <Card title="Refused requests" about="By reason, in this period. Nothing was charged." flush>
      <Table
        caption="Refused requests by reason"
        columns={columns}
        rows={refusals}
        keyOf={({ code }) => code}
        empty={null}
      />
    </Card>
  );
}

/** Name of a ranked row, which leads to its requests, the highest charge first. */
function Behind({ view, text }: { view: Partial<View>; text: string }) {
  return <RequestsLink view={{ ...view, sort: "charged" }}>{text}</RequestsLink>;
}

function OrganizationLink({ organization_id, name }: { organization_id: string; name: string | null }) {
  return (
    <Link className="row-link wrap-anywhere" href={`/organizations/${encodeURIComponent(organization_id)}`}>
      {name ?? organization_id}
    </Link>
  );
}
