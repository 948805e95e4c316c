import { useQuery } from "@tanstack/react-query";
import { Boxes } from "lucide-react";
import { useLocation, useSearch } from "wouter";
import { models as modelsQuery } from "../../api/queries.ts";
import type { Model } from "../../api/types.ts";
import { useSession } from "../../shell/session.ts";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Empty, Failure, NoMatches, Skeleton } from "../../ui/states.tsx";
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
  const clear = () => setFilters({ search: "", category: "", capability: "" });
  return (
    <Page title="Models" about="Available models, with capabilities and prices in credits per million tokens">
      <search className="toolbar" aria-label="Filter models">
        <SearchField label="Name or ID" value={filters.search} onValue={(search) => setFilters({ search })} />
        <Choice
          label="Category"
          all="All categories"
          value={filters.category}
          options={valuesOf(catalog, ({ category }) => [category])}
          onValue={(category) => setFilters({ category })}
        />
        <Choice
          label="Capability"
          all="All capabilities"
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
            empty={
              catalog?.length === 0 ? (
                <NoModels />
              ) : (
                <NoMatches icon={Boxes} title="No matching models" onClear={clear} />
              )
            }
          />
        </Card>
      )}
      <OpenModel catalog={catalog} />
    </Page>
  );
}

function NoModels() {
  const { role } = useSession();
  return (
    <Empty icon={Boxes} title="No models available">
      {role === "operator"
        ? "Set a provider's API key in the environment, or add models to tollgate.yaml."
        : "Your token has access to no models. Ask the operator of the service."}
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
