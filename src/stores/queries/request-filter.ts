import type { RequestStatus } from "../../api/admin/request.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import { idAt } from "../../credits/request-id.ts";
import type { SqlDialect } from "../driver.ts";
import { allOf, equal, raw, type Sql, sql } from "../sql.ts";

/** Filters of requests; null matches any value. */
export interface RequestFilter {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  id: string | null;
  requestId: string | null;
  status: RequestStatus | null;
  failure: string | null;
  /** `provider/model` of the last charge. */
  route: string | null;
  budgetId: string | null;
  metadata: { key: string; value: string } | null;
  chargedMin: MicroCredits | null;
  /** The period in which the requests began; `toMs` is exclusive. */
  fromMs: number | null;
  toMs: number | null;
}

/** Values of a row of `request`, as expressions. A late settlement corrects those of a recovered request. */
export interface RequestValues {
  status: Sql;
  failure: Sql;
  route: Sql;
  charged: Sql;
  inputTokens: Sql;
  outputTokens: Sql;
  durationMs: Sql;
  /** Returns one value of the metadata; null if the request has no such key. */
  metadata(key: string): Sql;
}

export function requestValues({ jsonField }: Pick<SqlDialect, "jsonField">): RequestValues {
  const settled = (key: string) => jsonField(raw("late.settlement"), key);
  const failure = corrected("failure", jsonField(settled("trace"), "failure"));
  const ending = corrected("ending", settled("end"));
  return {
    failure,
    status: sql`(case when ${failure} is not null then 'failed'
      when ${ending} in ('released', 'client_disconnected') then 'client_disconnected'
      when ${ending} = 'recovered' then 'recovered' else 'complete' end)`,
    route: corrected("upstream", settled("upstream")),
    charged: corrected("cost", raw("request.cost + late.amount")),
    inputTokens: corrected("input_tokens", raw("request.input_tokens + late.input_tokens")),
    outputTokens: corrected("output_tokens", raw("request.output_tokens + late.output_tokens")),
    durationMs: raw("(request.ended_at - request.made_at)"),
    metadata: (key) => jsonField(raw("request.metadata"), key),
  };
}

/** Returns a column, or for a recovered request its corrected value. Only these rows look for a late settlement. */
function corrected(column: string, correction: Sql): Sql {
  const own = raw(`request.${column}`);
  return sql`(case when request.ending = 'recovered' then coalesce((select ${correction} from adjustment as late
    where late.organization_id = request.organization_id and late.hold_id = request.id
      and late.kind = 'late_settlement'), ${own}) else ${own} end)`;
}

/** Returns the condition that a row of `request`, joined with its organization, matches a filter. */
export function isMatch(values: RequestValues, filter: RequestFilter): Sql {
  const { organizationId, tokenId, model, id, requestId, status, failure, route, budgetId, metadata } = filter;
  const { fromMs, toMs, chargedMin } = filter;
  const names = { "organization.id": organizationId, "request.token_id": tokenId, "request.model": model };
  return allOf(
    equal({ ...names, "request.id": id, "request.request_id": requestId }),
    fromMs !== null && sql`request.id >= ${idAt(fromMs)}`,
    toMs !== null && sql`request.id < ${idAt(toMs)}`,
    status !== null && sql`${values.status} = ${status}`,
    failure !== null && sql`${values.failure} = ${failure}`,
    route !== null && sql`${values.route} = ${route}`,
    chargedMin !== null && sql`${values.charged} >= ${chargedMin}`,
    // The text is JSON of the service's own: a quote inside of a value is escaped.
    budgetId !== null &&
      sql`request.budgets like ${`%[${JSON.stringify(budgetId).replace(/[\\%_]/g, "\\$&")},%`} escape '\\'`,
    metadata !== null && sql`${values.metadata(metadata.key)} = ${metadata.value}`,
  );
}
