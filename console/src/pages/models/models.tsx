import { useQuery } from "@tanstack/react-query";
import { Boxes } from "lucide-react";
import { useLocation, useSearch } from "wouter";
import { models as modelsQuery } from "../../api/queries.ts";
import type { Model } from "../../api/types.ts";
import { useSession } from "../../shell/session.ts";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Empty, Failure, Skeleton } from "../../ui/states.tsx";
import { Table } from "../../ui/table.tsx";
import { Choice } from "../choice.tsx";
import { useFilters } from "../use-filters.ts";
import { columnsOf } from "./columns.tsx";
import { Compare } from "./compare.tsx";
import { COMPARED_MAX, comparedIn, isAt, matching, toggled } from "./find.ts";
import { ModelPanel } from "./panel.tsx";

const valuesOf = (catalog: readonly Model[] | undefined, of: (model: Model) => readonly string[]) =>
  [...new Set((catalog ?? []).flatMap(of))].sort().map((value) => [value, value.replaceAll("_", " ")] as const);

/** What can be asked, what it can do, and what it costs. */
export default function Models() {
  const { role } = useSession();
  const [filters, setFilters] = useFilters(["search", "category", "capability", "compare"]);
  const query = useQuery(modelsQuery);
  const catalog = query.data?.data;
  const found = catalog && matching(catalog, filters);
  const compared = comparedIn(filters.compare);
  return (
    <Page title="Models" about="What can be asked, what it can do, and what it costs in credits per million tokens.">
      <search className="toolbar" aria-label="Filter models">
        <SearchField label="Name or id" value={filters.search} onValue={(search) => setFilters({ search })} />
        <Choice
          label="Category"
          all="Every category"
          value={filters.category}
          options={valuesOf(catalog, ({ category }) => [category])}
          onValue={(category) => setFilters({ category })}
        />
        <Choice
          label="Capability"
          all="Any capability"
          value={filters.capability}
          options={valuesOf(catalog, ({ capabilities }) => capabilities)}
          onValue={(capability) => setFilters({ capability })}
        />
      </search>
      {query.isError && <Failure error={query.error} onRetry={() => query.refetch()} retrying={query.isFetching} />}
      {catalog === undefined && compared.length > 1 && <Skeleton height="37rem" />}
      <Compare
        models={(catalog ?? []).filter(({ id }) => compared.includes(id))}
        onClear={() => setFilters({ compare: "" })}
      />
      {!(query.isError && catalog === undefined) && (
        <Card flush>
          <Table
            caption="Models"
            columns={columnsOf({
              compared,
              isFull: compared.length >= COMPARED_MAX,
              withRoutes: role === "operator",
              onToggle: (id) => setFilters({ compare: toggled(compared, id) }),
            })}
            rows={found}
            keyOf={({ id }) => id}
            empty={<NoModels isEmpty={catalog?.length === 0} isOperator={role === "operator"} />}
          />
        </Card>
      )}
      <OpenModel catalog={catalog} />
    </Page>
  );
}

function NoModels({ isEmpty, isOperator }: { isEmpty: boolean; isOperator: boolean }) {
  if (!isEmpty) {
    return (
      <Empty icon={Boxes} title="No model is like this">
        Take off a filter, or search for less.
      </Empty>
    );
  }
  return (
    <Empty icon={Boxes} title="No model to be asked">
      {isOperator
        ? "Set a provider's key in the environment, or write models into tollgate.yaml."
        : "Your token may ask none. Whoever runs this service can change that."}
    </Empty>
  );
}

function OpenModel({ catalog }: { catalog: readonly Model[] | undefined }) {
  const [path, go] = useLocation();
  const search = useSearch();
  const model = catalog?.find(({ id }) => isAt(path, id));
  if (model === undefined) return null;
  return <ModelPanel model={model} onClose={() => go(search === "" ? "/models" : `/models?${search}`)} />;
}
