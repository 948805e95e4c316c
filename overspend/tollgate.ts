import { type Account, BenchmarkError, type Gateway, type GatewayDescription, type Step } from "./gateway.ts";
import { parseMicro, type TokenPrices, valueAt } from "./money.ts";

const ADMIN = { authorization: "Bearer {adminToken}" };
const CALLER = { authorization: "Bearer {key}" };
const NOTHING_READ = { headers: ADMIN, read: {} };
const GRANT: Step = {
  ...NOTHING_READ,
  method: "POST",
  path: "/admin/v1/organizations/{organization}/grants",
  body: { amount: "{amount}" },
};
/** Prices of the sandbox models: credits per million tokens are micro-credits per token. */
export const SANDBOX_PRICES: TokenPrices = { input: 1n, output: 2n };

/** Describes Tollgate: an organization with a token is an account. */
export function describeTollgate(model: string, prices: TokenPrices): GatewayDescription {
  return {
    ...{ name: "tollgate", model, prices, microPerUnit: 1_000_000n },
    counting: { leastPercent: 100, mostPercent: 100 },
    ...{ completionsPath: "/v1/chat/completions", adminUrl: undefined },
    readyPath: "/readyz",
    // A request that runs holds credits, so charges are final once nothing is held.
    settleSeconds: 0,
    createKey: [
      {
        ...{ method: "POST", path: "/admin/v1/organizations", headers: ADMIN },
        body: { name: "{name}" },
        read: { organization: "id" },
      },
      GRANT,
      {
        ...{ method: "POST", path: "/admin/v1/tokens", headers: ADMIN },
        body: { organization_id: "{organization}", name: "overspend" },
        read: { key: "secret" },
      },
    ],
    topUp: [GRANT],
    balance: [
      {
        ...{ method: "GET", path: "/v1/usage", headers: CALLER },
        read: { charged: "creditsUsed", held: "creditsHeld" },
      },
    ],
  };
}

/** Returns the field of a request by which `chargesByIntent` finds it again. */
export function markOf(id: string): object {
  return { metadata: { overspend: id } };
}

/** Reads the version of a running Tollgate. */
export async function versionOf(gateway: Gateway): Promise<string> {
  const service = await gateway.send({ ...NOTHING_READ, method: "GET", path: "/admin/v1/service" }, {});
  return String(valueAt(service, "version"));
}

/** Reads the prices of a model, in micro-credits a token; undefined if the service does not have the model. */
export async function pricesOf(gateway: Gateway, account: Account, model: string): Promise<TokenPrices | undefined> {
  const list = await gateway.send({ method: "GET", path: "/v1/models", headers: CALLER, read: {} }, account.variables);
  const models = valueAt(list, "data");
  const found = Array.isArray(models) ? models.find((one) => valueAt(one, "id") === model) : undefined;
  if (found === undefined) return undefined;
  const priceOf = (name: string) => {
    // Per million tokens in credits is per token in micro-credits.
    const text = String(valueAt(found, `pricing_details.${name}`));
    const price = parseMicro(text, 1n);
    if (price !== undefined && parseMicro(text) === price * 1_000_000n) return price;
    throw new BenchmarkError(
      `The ${name} price of ${model} must be a whole number of credits per million tokens: ${text}.`,
    );
  };
  return { input: priceOf("input"), output: priceOf("output") };
}

const PAGE = "/admin/v1/requests?organization_id={organization}&limit=200";

/** Reads what was charged for each marked request of an account; requests with the same mark are added up. */
export async function chargesByIntent(gateway: Gateway, account: Account): Promise<Map<string, bigint>> {
  const charges = new Map<string, bigint>();
  for (let path: string | undefined = PAGE; path !== undefined; ) {
    const page: unknown = await gateway.send({ ...NOTHING_READ, method: "GET", path }, account.variables);
    for (const row of valueAt(page, "data") as unknown[]) {
      const id = String(valueAt(row, "metadata.overspend") ?? "unmarked");
      const charged = parseMicro(String(valueAt(row, "charged")));
      if (charged === undefined) throw new BenchmarkError("A request of the list has no charge.");
      charges.set(id, (charges.get(id) ?? 0n) + charged);
    }
    const cursor = valueAt(page, "next_cursor");
    path = typeof cursor === "string" ? `${PAGE}&cursor=${encodeURIComponent(cursor)}` : undefined;
  }
  return charges;
}
