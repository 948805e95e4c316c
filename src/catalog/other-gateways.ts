import { detailsOf, isObject, type JsonObject, objectsIn } from "../api/json.ts";
import { isoTime } from "../api/time.ts";
import { BUDGETS_MAX } from "../credits/budgets.ts";

/** An organization as `tollgate apply` reads it. */
type Imported = Record<string, unknown> & { external_id: string; tokens: { name: string }[]; budgets: object[] };

/** A key of another gateway. What it may spend is an amount in dollars; null: no bound. */
interface Key {
  id: string;
  name: unknown;
  models?: unknown;
  limits?: object;
  amount: number | null;
  /** The rest of an amount that is not renewed. */
  left: number | null;
  renewal?: unknown;
  isDisabled: boolean;
  expiresAtMs?: number | undefined;
}

const WINDOWS: Record<string, string> = {
  ...{ "1d": "day", "24h": "day", daily: "day", "7d": "week", weekly: "week" },
  ...{ "30d": "month", "1mo": "month", monthly: "month" },
};
/** Units of new-api's quota that are a dollar. A ratio of 1 is two dollars per million tokens. */
const UNITS_PER_DOLLAR = 500_000;
const LAST_MS = Date.parse("9999-12-31");

/** Organizations and prices of another gateway, collected from answers of its API. */
class GatewayImport {
  readonly organizations = new Map<string, Imported>();
  /** Prices of models in credits per million tokens. */
  readonly prices: Record<string, Record<string, number>> = {};
  /** Sentences about everything that is left out. */
  readonly notes: string[] = [];
  readonly #nowMs: number;
  readonly #creditsPerDollar: number;

  constructor(nowMs: number, creditsPerDollar: number) {
    this.#nowMs = nowMs;
    this.#creditsPerDollar = creditsPerDollar;
  }

  /** Returns an organization, to which terms are added. External ids have no spaces and only ASCII. */
  organization(id: string, terms: JsonObject = {}): Imported {
    const external_id = encodeURI(id.toWellFormed());
    const present = this.organizations.get(external_id) ?? { external_id, name: id, tokens: [], budgets: [] };
    this.organizations.set(external_id, Object.assign(present, terms));
    return present;
  }

  /** Grants what is left of a balance, or every month an amount that is renewed monthly. */
  addFunds(organization: Imported, { amount, left, renewal = null }: Pick<Key, "amount" | "left" | "renewal">): void {
    const reference = `imported from ${organization.external_id}`;
    const credits = this.#credits(renewal === null ? left : amount);
    if (credits > 0 && renewal === null) organization.grants = [{ reference, amount: credits }];
    else if (credits > 0 && windowOf(renewal) === "month") organization.allowances = [{ reference, amount: credits }];
    else
      this.notes.push(
        `${organization.external_id} gets no credits: its budget is ${amount ?? "none"}, renewed: ${renewal ?? "never"}`,
      );
  }

  /** Adds a token for a key. What the key may spend is its cap, or a budget if it is renewed. */
  addKey(
    { external_id, tokens, budgets }: Imported,
    { id, models, limits, amount, left, renewal = null, ...key }: Key,
  ): void {
    const { isDisabled, expiresAtMs } = key;
    const stated = typeof key.name === "string" && key.name !== "" ? key.name : id.slice(0, 12);
    const name = tokens.some((token) => token.name === stated) ? `${stated} ${id.slice(0, 12)}` : stated;
    const window = windowOf(renewal);
    const credits = this.#credits(renewal === null ? left : amount);
    const isExpired = expiresAtMs !== undefined && !(expiresAtMs > this.#nowMs);
    const isRenewed = amount !== null && window !== undefined;
    const isFull = isRenewed && budgets.length >= BUDGETS_MAX;
    const isSpent = amount !== null && (credits <= 0 || (renewal !== null && window === undefined));
    if (isDisabled || isExpired || isFull || isSpent) {
      const budget = `its budget is ${amount ?? "none"}, of which ${left ?? "all"} is left, renewed: ${renewal ?? "never"}`;
      const limit = isSpent ? budget : `its organization has ${BUDGETS_MAX} budgets, the maximum`;
      this.notes.push(
        `${external_id} gets no token ${JSON.stringify(name)}: ${isDisabled ? "it is disabled" : isExpired ? "it has expired" : limit}`,
      );
      return;
    }
    tokens.push({
      name,
      ...(Array.isArray(models) && models.length > 0 && { models }),
      ...(limits !== undefined && Object.keys(limits).length > 0 && { limits }),
      ...(expiresAtMs !== undefined && { expires_at: isoTime(expiresAtMs) }),
      ...(amount !== null && !isRenewed && { cap: credits }),
    });
    if (isRenewed) budgets.push({ name, window, amount: credits, selector: { tokens: [name] } });
  }

  /** Adds the prices of a model, in dollars per token. */
  addPrices(model: string, dollars: Record<"input" | "output" | "cachedInput" | "cacheWrite", unknown>): void {
    const prices = Object.entries(dollars).map(([name, price]) => [name, this.#credits(Number(price) * 1e6)] as const);
    const stated = prices.filter(([name, price]) => price >= 0 && dollars[name as "input"] != null);
    if (stated.length > 0) this.prices[model] = Object.fromEntries(stated);
  }

  #credits(dollars: number | null): number {
    return Math.round((dollars ?? 0) * this.#creditsPerDollar * 1e6) / 1e6;
  }
}

/** Functions that add an entry of another gateway. */
const READERS: Record<string, (target: GatewayImport, entry: JsonObject) => void> = {
  litellm(target, { team_id, organization_id, user_id, max_budget, spend, models, blocked, token, ...entry }) {
    if (typeof entry.model_name === "string") {
      const { input_cost_per_token: input, output_cost_per_token: output, ...info } = detailsOf(entry.model_info);
      const cached = {
        cachedInput: info.cache_read_input_token_cost,
        cacheWrite: info.cache_creation_input_token_cost,
      };
      return target.addPrices(entry.model_name, { input, output, ...cached });
    }
    const amount = numberOf(max_budget);
    const funds = { amount, left: amount && amount - (numberOf(spend) ?? 0), renewal: entry.budget_duration ?? null };
    const limits = {
      ...limit("requests_per_minute", entry.rpm_limit),
      ...limit("tokens_per_minute", entry.tpm_limit),
      ...limit("concurrent_requests", entry.max_parallel_requests),
    };
    const own = Array.isArray(models) ? models.filter((model) => !/^(all-.*-models|\*)$/.test(model)) : [];
    const id = `litellm:${team_id ?? organization_id ?? user_id ?? "default"}`;
    if (typeof token === "string") {
      const expiresAtMs = timeOf(entry.expires);
      const key = {
        id: token,
        name: entry.key_alias ?? entry.key_name,
        models: own,
        limits,
        isDisabled: blocked === true,
      };
      target.addKey(target.organization(id), { ...key, ...funds, expiresAtMs });
    } else if (typeof team_id === "string") {
      const terms = { name: entry.team_alias ?? id, ...(own.length > 0 && { models: own }), limits };
      target.addFunds(target.organization(id, { ...terms, ...(blocked === true && { status: "paused" }) }), funds);
    }
  },
  "new-api"(target, { id, username, quota, user_id, status, model_name, model_ratio, ...entry }) {
    // Lists of users, and the tables, have what was deleted.
    if ((entry.deleted_at ?? entry.DeletedAt ?? null) !== null) {
      target.notes.push(`${JSON.stringify(username ?? entry.name ?? id)} is left out: it was deleted`);
      // Its keys may still be listed.
      if (typeof username === "string") target.organization(`new-api:${id}`, { isDeleted: true });
      return;
    }
    const dollars = (units: unknown) => (numberOf(units) ?? 0) / UNITS_PER_DOLLAR;
    if (typeof model_name === "string" && entry.quota_type === 0) {
      const times = (ratio: unknown) => (typeof ratio === "number" ? dollars(model_ratio) * ratio : null);
      const cached = { cachedInput: times(entry.cache_ratio), cacheWrite: times(entry.create_cache_ratio) };
      target.addPrices(model_name, { input: times(1), output: times(entry.completion_ratio), ...cached });
    } else if (typeof username === "string") {
      const contacts = entry.email ? { contacts: [entry.email] } : {};
      const terms = { name: entry.display_name || username, ...contacts, ...(status !== 1 && { status: "paused" }) };
      const amount = dollars(quota);
      target.addFunds(target.organization(`new-api:${id}`, terms), { amount, left: amount });
    } else if (entry.remain_quota !== undefined) {
      const amount = isOn(entry.unlimited_quota) ? null : dollars(entry.remain_quota);
      const seconds = numberOf(entry.expired_time) ?? -1;
      const models = isOn(entry.model_limits_enabled) ? String(entry.model_limits).split(",") : [];
      const key = { id: String(id), name: entry.name, models, amount, left: amount, isDisabled: status !== 1 };
      const expiresAtMs = seconds > 0 ? Math.min(seconds * 1_000, LAST_MS) : undefined;
      target.addKey(target.organization(`new-api:${user_id}`), { ...key, expiresAtMs });
    }
  },
  openrouter(target, { id, hash, name, label, limit: most, limit_remaining, limit_reset, total_credits, ...entry }) {
    const organization = () => target.organization("openrouter", { name: "OpenRouter" });
    if (isObject(entry.pricing)) {
      const { prompt: input, completion: output, input_cache_read, input_cache_write: cacheWrite } = entry.pricing;
      target.addPrices(String(id), { input, output, cachedInput: input_cache_read, cacheWrite });
    } else if (typeof total_credits === "number") {
      const left = total_credits - (numberOf(entry.total_usage) ?? 0);
      target.addFunds(organization(), { amount: left, left });
    } else if (typeof hash === "string") {
      const funds = { amount: numberOf(most), left: numberOf(limit_remaining), renewal: limit_reset ?? null };
      const key = {
        id: hash,
        name: name ?? label,
        isDisabled: entry.disabled === true,
        expiresAtMs: timeOf(entry.expires_at),
      };
      target.addKey(organization(), { ...key, ...funds });
    }
  },
};

export const GATEWAYS: readonly string[] = Object.keys(READERS);

/** Reads answers of the API of one of `GATEWAYS`: lists of its keys, organizations and prices, in any order. */
export function convertGateway(gateway: string, answers: readonly unknown[], nowMs: number, creditsPerDollar: number) {
  const target = new GatewayImport(nowMs, creditsPerDollar);
  for (const entry of answers.flatMap(entriesIn)) READERS[gateway]?.(target, entry);
  const { prices, notes } = target;
  return { organizations: [...target.organizations.values()].filter(({ isDeleted }) => !isDeleted), prices, notes };
}

/** Returns the entries of an answer, which may be in a page. */
function entriesIn(answer: unknown): JsonObject[] {
  if (!isObject(answer)) return objectsIn(answer);
  const page = ["data", "items", "keys", "teams"].find((name) => isObject(answer[name]) || Array.isArray(answer[name]));
  return page === undefined ? [answer] : entriesIn(answer[page]);
}

function windowOf(renewal: unknown): string | undefined {
  return WINDOWS[String(renewal)];
}

/** Tells if a flag is set. Databases export 1 for true. */
function isOn(value: unknown): boolean {
  return value === true || value === 1;
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function timeOf(value: unknown): number | undefined {
  // The number of decimals differs. A time that cannot be read counts as one that is over.
  return typeof value === "string" ? Date.parse(value) : undefined;
}

function limit(name: string, value: unknown): object {
  return typeof value === "number" && value > 0 ? { [name]: value } : {};
}
