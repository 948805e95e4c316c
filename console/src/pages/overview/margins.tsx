import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useState } from "react";
import { withQuery } from "../../api/client.ts";
import { type MarginsFilter, margins } from "../../api/queries.ts";
import type { Margins as Figures } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { formatCount } from "../../format/numbers.ts";
import { Card } from "../../ui/page.tsx";
import { QueryFailure } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";

const GROUPS = [
  ["route", "By route"],
  ["organization", "By organization"],
] as const;
const HEADS = { model: "Model", route: "Route", organization: "Organization" };
type Group = MarginsFilter["by"];
type Row = Figures["data"][number];

/** Charges and the costs that providers reported, by month; nothing where no provider reported one. */
export function Margins({ filter }: { filter: Omit<MarginsFilter, "by"> }) {
  const [group, setGroup] = useState<"" | Group>("");
  const by = group || "model";
  const query = useQuery(margins({ ...filter, by }));
  const rows = query.data?.data;
  if (rows !== undefined && !rows.some(hasCost)) return null;
  const columns: Column<Row>[] = [
    { head: "Month", cell: ({ month }) => month },
    { head: HEADS[by], cell: ({ name }) => <span className="wrap-anywhere">{name}</span> },
    { head: "Requests", right: true, cell: ({ requests }) => formatCount(requests) },
    { head: "Charged", right: true, cell: ({ charged }) => <Credits value={charged} /> },
    { head: "Provider cost, $", right: true, cell: (row) => (hasCost(row) ? row.provider_cost : "–") },
    { head: "Margin, $", right: true, cell: (row) => (hasCost(row) ? row.margin : "–") },
  ];
  return (
    <Card
      title="Margins"
      about="Charges minus provider costs, for requests whose provider reported a cost"
      flush
      actions={
        <>
          <Choice
            label="Margins"
            all="By model"
            value={group}
            options={GROUPS}
            onValue={(value) => setGroup(value as Group)}
          />
          <a
            className="button button-plain"
            href={`${BASE_PATH}${withQuery("/admin/v1/margins.csv", { ...filter, by })}`}
            download
          >
            <Download size={15} strokeWidth={1.9} aria-hidden="true" />
            <span>Export CSV</span>
          </a>
        </>
      }
    >
      <QueryFailure query={query} />
      <Table
        caption="Margins by month"
        columns={columns}
        rows={rows?.slice(0, ROWS_SHOWN)}
        keyOf={({ month, name }) => `${month} ${name}`}
        empty={null}
      />
    </Card>
  );
}

/** The export has all. */
const ROWS_SHOWN = 20;

function hasCost({ charged_with_cost, provider_cost }: Row): boolean {
  return charged_with_cost > 0 || Number(provider_cost) > 0;
}
