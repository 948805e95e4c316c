import { useQuery } from "@tanstack/react-query";
import { Boxes } from "lucide-react";
import { Link, useLocation, useSearch } from "wouter";
import { models as modelsQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Model } from "../../api/types.ts";
import { ModelName } from "../../charts/model-color.tsx";
import { formatShort } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Badge, Empty, NoMatches, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Choice, useFilters } from "../filters.tsx";
import { Compare, cutoffLabel, hasOtherPrices, ModelPanel, otherPricesText, tokenPriceText } from "./details.tsx";
import { COMPARED_MODELS_MAX, filterModels, isModelPath, modelPath, parseCompared, toggleCompared } from "./find.ts";
import { RouteBadge } from "./health.tsx";

const valuesOf = (catalog: readonly Model[] | undefined, of: (model: Model) => readonly string[]) =>
  [...new Set((catalog ?? []).flatMap(of))].sort().map((value) => [value, value.replaceAll("_", " ")] as const);

/** Models with their capabilities and prices. */
export default function Models() {
  const { may } = useAccess();
  const [filters, setFilters] = useFilters(["search", "category", "capability", "compare"]);
  const query = useSteady(useQuery(modelsQuery));
  const catalog = query.data?.data;
  const found = catalog && filterModels(catalog, filters);
  const compared = parseCompared(filters.compare);
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
      <QueryFailure query={query} />
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
              isFull: compared.length >= COMPARED_MODELS_MAX,
              withOtherPrices: catalog?.some(hasOtherPrices) === true,
              withRoutes: may("upstreams:read"),
              onToggle: (id) => setFilters({ compare: toggleCompared(compared, id) }),
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
  const { may } = useAccess();
  return (
    <Empty icon={Boxes} title="No models available">
      {may("upstreams:read")
        ? "Set a provider's API key in the environment, or add models to tollgate.yaml."
        : "Your token has access to no models. Ask the operator of the service."}
    </Empty>
  );
}

function OpenModel({ catalog }: { catalog: readonly Model[] | undefined }) {
  const [path, go] = useLocation();
  const search = useSearch();
  const model = catalog?.find(({ id }) => isModelPath(path, id));
  if (model === undefined) return null;
  return <ModelPanel model={model} onClose={() => go(search === "" ? "/models" : `/models?${search}`)} />;
}

interface ColumnChoices {
  compared: readonly string[];
  isFull: boolean;
  withOtherPrices: boolean;
  withRoutes: boolean;
  onToggle: (id: string) => void;
}

export function columnsOf({ compared, isFull, withOtherPrices, withRoutes, onToggle }: ColumnChoices): Column<Model>[] {
  const columns: (Column<Model> | false)[] = [
    {
      head: "Compare",
      cell: ({ id, name }) => (
        <input
          type="checkbox"
          aria-label={`Compare ${name}`}
          checked={compared.includes(id)}
          disabled={isFull && !compared.includes(id)}
          onChange={() => onToggle(id)}
        />
      ),
    },
    { head: "Model", cell: (model) => <Name model={model} /> },
    { head: "Category", cell: ({ category }) => <Badge>{category}</Badge> },
    {
      head: "Context",
      right: true,
      cell: ({ context_length: tokens }) => (tokens === null ? "Unknown" : formatShort(tokens)),
    },
    {
      head: "Knowledge cutoff",
      cell: (model) => <span className="figures">{cutoffLabel(model)}</span>,
    },
    { head: "Input", right: true, cell: (model) => tokenPriceText(model, "input") },
    {
      head: "Cached input",
      right: true,
      cell: (model) => tokenPriceText(model, "cached_input"),
    },
    { head: "Output", right: true, cell: (model) => tokenPriceText(model, "output") },
    withOtherPrices && {
      head: "Other prices",
      right: true,
      cell: ({ pricing_details }) => otherPricesText(pricing_details),
    },
    withRoutes && {
      head: "Routes",
      cell: ({ routes }) => (
        <span className="row">
          {(routes ?? []).map((route) => (
            <RouteBadge key={route.route} route={route} />
          ))}
        </span>
      ),
    },
  ];
  return columns.filter((column) => column !== false);
}

function Name({ model: { id, name, deprecated } }: { model: Model }) {
  const search = useSearch();
  const path = modelPath(id);
  return (
    <span className="cell-two">
      <span className="row">
        <ModelName id={id}>
          <Link className="row-link wrap-anywhere" href={search === "" ? path : `${path}?${search}`}>
            {name}
          </Link>
        </ModelName>
        {deprecated && <Badge tone="warn">Deprecated</Badge>}
      </span>
      <span className="mono faint wrap-anywhere">{id}</span>
    </span>
  );
}
