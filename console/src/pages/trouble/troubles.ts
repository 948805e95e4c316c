import type { Budget, Organization, Overview, Token } from "../../api/types.ts";
import { countOf, formatAmount, formatLasting } from "../../format/numbers.ts";
import { formatDistance, formatMoment } from "../../format/times.ts";
import { fillOf, usageLabel, WARNING_SHARE } from "../organizations/budget-terms.ts";

/** A state that stops requests, or will soon. */
export interface Trouble {
  /** `bad`: requests are refused now. */
  tone: "warn" | "bad";
  title: string;
  text?: string;
  items: { text: string; path: string }[];
}

/** Days before an expiry, or before the end of the credits, at which people are told. */
export const NOTICE_DAYS = 7;

/** Returns the troubles of an organization itself: it is paused, or its credits are used up or will be soon. */
export function troublesOfOrganization(organization: Organization): Trouble[] {
  const { name, status, kind, pauses_allowances } = organization;
  const troubles: Trouble[] = [];
  if (status === "paused") {
    const allowances = pauses_allowances ? " Its allowances are paused as well." : "";
    const text = `New requests are refused with 403 organization_paused. Its credits are kept.${allowances}`;
    troubles.push({ tone: "bad", title: `${name} is paused`, text, items: [] });
  }
  const hasCredits = kind === "standard" && status !== "closed";
  return hasCredits ? [...troubles, ...troublesOfCredits(organization)] : troubles;
}

/** The same share as the service takes for its count of organizations that cannot pay. */
const EMPTY_SHARE = 0.001;

function troublesOfCredits({ name, credits, days_left, credit_warnings }: Organization): Trouble[] {
  const { available, total } = credits;
  const left = `${formatAmount(available)} credits are left.`;
  if (available <= total * EMPTY_SHARE) {
    const text = "New requests are refused with 402 insufficient_credits until credits are granted.";
    return [{ tone: "bad", title: `${name} is out of credits`, text: `${left} ${text}`, items: [] }];
  }
  const warnAt = credit_warnings?.filter((amount) => available <= amount).toSorted((one, other) => one - other)[0];
  if (days_left !== null && days_left < NOTICE_DAYS) {
    return [{ tone: "warn", title: "Credits run out soon", text: `${left} ${formatLasting(days_left)}.`, items: [] }];
  }
  if (warnAt === undefined) return [];
  const text = `${left} You are warned at ${formatAmount(warnAt)}.`;
  return [{ tone: "warn", title: "Few credits are left", text, items: [] }];
}

/** Returns the trouble of budgets that are used up or nearly so. `path` is the page that shows them. */
export function troubleOfBudgets(budgets: readonly Budget[], path: string): Trouble[] {
  const full = budgets.flatMap(({ name, current }) => {
    if (current === null) return [];
    const { warning } = fillOf(current);
    if (warning === null) return [];
    const reset = current.resets_at === null ? "" : `, until ${formatMoment(current.resets_at)}`;
    return [{ tone: warning.tone, text: `${name}: ${warning.text}. ${usageLabel(current)}${reset}`, path }];
  });
  if (full.length === 0) return [];
  const isUsedUp = full.some(({ tone }) => tone === "bad");
  const title = `${countOf(full.length, "budget is", "budgets are")} used up or nearly so`;
  const text = isUsedUp ? "Requests beyond a budget are refused with 402 budget_exhausted." : undefined;
  return [{ tone: isUsedUp ? "bad" : "warn", title, ...(text && { text }), items: full }];
}

/**
 * Returns the trouble of tokens that expire soon, but for those that another one has replaced. Their organizations are named
 * where the reader sees several.
 */
export function troubleOfTokens(tokens: readonly Token[], nowMs: number, isServiceWide: boolean): Trouble[] {
  const expiring = tokens.flatMap(({ id, name, organization_name, expires_at, successor_id }) => {
    if (expires_at === null || successor_id !== null || Date.parse(expires_at) - nowMs > NOTICE_DAYS * 86_400_000)
      return [];
    const owner = isServiceWide ? ` of ${organization_name}` : "";
    const text = `${name}${owner} expires ${formatDistance(expires_at, nowMs)}`;
    return [{ text, path: `/tokens/${encodeURIComponent(id)}` }];
  });
  if (expiring.length === 0) return [];
  const title = `${countOf(expiring.length, "token expires", "tokens expire")} within ${NOTICE_DAYS} days`;
  const text = "Requests with an expired token are refused with 401. Change the expiry, or rotate the token.";
  return [{ tone: "warn", title, text, items: expiring }];
}

/** Returns the troubles of one token: it expires soon, or its spending cap is used up or nearly so. */
export function troubleOfToken(token: Token, nowMs: number): Trouble[] {
  const { status, expires_at, cap } = token;
  if (status !== "active") return [];
  const expiry = troubleOfTokens([token], nowMs, false).map(({ text, tone }) => ({
    ...{ tone, text, items: [] },
    title: `This token expires ${formatDistance(expires_at ?? nowMs, nowMs)}`,
  }));
  const share = cap === null ? 0 : (cap.spent + cap.held) / cap.amount;
  if (cap === null || share < WARNING_SHARE) return expiry;
  const isUsedUp = share >= 1;
  const use = `${formatAmount(cap.spent)} spent, ${formatAmount(cap.held)} held of ${formatAmount(cap.amount)}.`;
  const title = isUsedUp ? "The spending cap is used up" : `${Math.floor(share * 100)}% of the spending cap is used`;
  const text = isUsedUp ? `${use} Requests beyond it are refused with 402 budget_exhausted.` : use;
  return [...expiry, { tone: isUsedUp ? "bad" : "warn", title, text, items: [] }];
}

/** Returns the troubles of all organizations: those that cannot pay, and those that are paused. */
export function troublesOfAll(counts: Overview["organizations"], paused: readonly Organization[]): Trouble[] {
  const { active = 0, out_of_credits: empty = 0, ending = [] } = counts ?? {};
  const troubles: Trouble[] = [];
  if (empty > 0) {
    const title = `${empty} of ${countOf(active, "organization")} cannot pay`;
    const named = ending.filter(({ days_left }) => days_left <= 0);
    const items = named.map(({ organization_id, name }) => ({ text: name, path: pathOf(organization_id) }));
    if (items.length === 0) items.push({ text: "See all organizations", path: "/organizations" });
    const text = "They are out of credits: their requests are refused with 402 insufficient_credits.";
    troubles.push({ tone: "bad", title, text, items });
  }
  if (paused.length > 0) {
    const title = `${countOf(paused.length, "organization is", "organizations are")} paused`;
    const items = paused.map(({ id, name }) => ({ text: name, path: pathOf(id) }));
    troubles.push({ tone: "warn", title, text: "Their requests are refused with 403 organization_paused.", items });
  }
  return troubles;
}

const pathOf = (organizationId: string) => `/organizations/${encodeURIComponent(organizationId)}`;
