import type { Static } from "typebox";
import type * as budget from "../../../src/api/admin/budget.ts";
import type * as common from "../../../src/api/admin/common.ts";
import type * as credits from "../../../src/api/admin/credits.ts";
import type * as operator from "../../../src/api/admin/operator.ts";
import type * as organization from "../../../src/api/admin/organization.ts";
import type * as receiver from "../../../src/api/admin/receiver.ts";
import type * as reports from "../../../src/api/admin/reports.ts";
import type * as request from "../../../src/api/admin/request.ts";
import type * as session from "../../../src/api/admin/session.ts";
import type * as token from "../../../src/api/admin/token.ts";

/** Responses of `/admin/v1`, as the service declares them. */
export type ServiceFacts = Static<typeof session.ServiceFacts>;
export type Session = Static<typeof session.Session>;
export type SignInAddress = Static<typeof session.SignInAddress>;
export type Permission = Session["permissions"][number];
export type Overview = Static<typeof reports.Overview>;
export type Organization = Static<typeof organization.Organization>;
export type TokenBounds = Organization["token_bounds"];
export type NewOrganization = Static<typeof organization.NewOrganization>;
export type OrganizationChange = Static<typeof organization.OrganizationChange>;
export type Limits = Static<typeof common.Limits>;
export type TokensByClass = Static<typeof common.TokensByClass>;
export type PricesByClass = Static<typeof common.PricesByClass>;
export type Grant = Static<typeof credits.Grant>;
export type NewGrant = Static<typeof credits.NewGrant>;
export type Booking = Static<typeof credits.Booking>;
export type NewRevocation = Static<typeof credits.NewRevocation>;
export type NewCredit = Static<typeof credits.NewCredit>;
export type NewCreditRequest = Static<typeof credits.NewCreditRequest>;
export type CreditRequest = Static<typeof credits.CreditRequest>;
export type Allowance = Static<typeof credits.Allowance>;
export type NewAllowance = Static<typeof credits.NewAllowance>;
export type Budget = Static<typeof budget.Budget>;
export type BudgetCounter = Static<typeof budget.BudgetCounter>;
export type BudgetWithCounters = Static<typeof budget.BudgetWithCounters>;
export type NewBudget = Static<typeof budget.NewBudget>;
export type BudgetChange = Static<typeof budget.BudgetChange>;
export type BudgetRaise = Static<typeof budget.BudgetRaise>;
export type StatementEntry = Static<typeof credits.StatementEntry>;
export type StatementPage = Static<typeof credits.StatementPage>;
export type Token = Static<typeof token.Token>;
export type NewToken = Static<typeof token.NewToken>;
export type TokenChange = Static<typeof token.TokenChange>;
export type TokenWithSecret = Static<typeof token.TokenWithSecret>;
export type RotatedToken = Static<typeof token.RotatedToken>;
export type RequestSummary = Static<typeof request.RequestSummary>;
export type SummedRequests = Static<typeof request.SummedRequests>;
export type RequestDetail = Static<typeof request.RequestDetail>;
export type Conversation = Static<typeof request.Conversation>;
export type ConversationRemoval = Static<typeof request.ConversationRemoval>;
export type Receiver = Static<typeof receiver.Receiver>;
/** The secret is null in the answer to a request that was repeated. */
export type ReceiverWithSecret = Omit<Static<typeof receiver.ReceiverWithSecret>, "secret"> & { secret: string | null };
export type NewReceiver = Static<typeof receiver.NewReceiver>;
export type ReceiverChange = Static<typeof receiver.ReceiverChange>;
export type WarningDelivery = Static<typeof receiver.WarningDelivery>;
export type Model = Static<typeof reports.AdminModel>;
export type ResumedRoute = Static<typeof reports.ResumedRoute>;
export type PlaygroundToken = Static<typeof session.PlaygroundToken>;
export type SearchResult = Static<typeof reports.SearchResult>;
export type Operator = Static<typeof operator.Operator>;
export type AuditEntry = Static<typeof reports.AuditEntry>;

export interface PageOf<T> {
  data: T[];
  next_cursor: string | null;
}
