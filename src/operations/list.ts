import { createAllowance, endAllowance, listAllowances } from "./allowances.ts";
import { changeBudget, createBudget, deleteBudget, listBudgets, raiseBudget, showBudget } from "./budgets.ts";
import { closeOrganization } from "./close-organization.ts";
import { createCredit, createGrant, createRevocation, listGrants, requestCredits } from "./credits.ts";
import { eraseOrganization } from "./erase-organization.ts";
import { blockIdentity, listIdentities, unblockIdentity } from "./identities.ts";
import type { Operation } from "./operation.ts";
import { createOperator, listOperators, revokeOperator } from "./operators.ts";
import {
  changeOrganization,
  changeTokenBounds,
  createOrganization,
  listOrganizations,
  removeConversations,
  showOrganization,
} from "./organizations.ts";
import { createCheckout, listPayments, showPaymentTerms } from "./payments.ts";
import {
  changeReceiver,
  createReceiver,
  deleteReceiver,
  listDeliveries,
  listReceivers,
  replayDelivery,
  rotateReceiverSecret,
  testReceiver,
} from "./receivers.ts";
import {
  exportAudit,
  exportAuditLines,
  exportMargins,
  listAudit,
  search,
  showLatencies,
  showMargins,
  showOverview,
} from "./reports.ts";
import {
  exportRequestLines,
  exportRequests,
  listRequests,
  showConversation,
  showRequest,
  sumRequests,
} from "./requests.ts";
import { rotateToken } from "./rotate-token.ts";
import { createPlaygroundToken, listModelsWithRoutes, resumeRoute, showService } from "./service.ts";
import { beginSignIn, completeSignIn, endSession, listSessions, showSession, signIn, signOut } from "./sessions.ts";
import {
  exportMonthStatement,
  exportStatement,
  listMonthStatements,
  showMonthStatement,
  showStatement,
} from "./statements.ts";
import { changeToken, createToken, listTokens, revokeToken, showToken } from "./tokens.ts";
import { endTopUp, saveCard, setTopUp, showTopUp } from "./top-ups.ts";
import { createVoucherBatch, listVoucherBatches, listVouchers, redeemVoucher, revokeVoucherBatch } from "./vouchers.ts";

/** Every operation of the admin API by its id, in the order of the documentation. */
export const operations: Readonly<Record<string, Operation>> = {
  ...{ showService, signIn, beginSignIn, completeSignIn, showSession, signOut },
  ...{ listOperators, createOperator, revokeOperator, listSessions, endSession },
  ...{ listIdentities, blockIdentity, unblockIdentity },
  ...{
    showOverview,
    showMargins,
    exportMargins,
    showLatencies,
    search,
    listAudit,
    exportAudit,
    exportAuditLines,
    listModelsWithRoutes,
    resumeRoute,
  },
  ...{ listOrganizations, createOrganization, showOrganization, changeOrganization },
  ...{ closeOrganization, eraseOrganization, changeTokenBounds },
  ...{ listGrants, createGrant, createRevocation, createCredit, requestCredits },
  ...{ showPaymentTerms, listPayments, createCheckout, redeemVoucher },
  ...{ listVoucherBatches, createVoucherBatch, listVouchers, revokeVoucherBatch },
  ...{ showTopUp, setTopUp, endTopUp, saveCard },
  ...{ listAllowances, createAllowance, endAllowance },
  ...{ listBudgets, createBudget, showBudget, changeBudget, deleteBudget, raiseBudget },
  ...{ showStatement, exportStatement },
  ...{ listMonthStatements, showMonthStatement, exportMonthStatement },
  ...{ listReceivers, createReceiver, changeReceiver, deleteReceiver, rotateReceiverSecret, testReceiver },
  ...{ listDeliveries, replayDelivery },
  ...{ listTokens, createToken, showToken, changeToken, rotateToken, revokeToken },
  ...{ listRequests, sumRequests, exportRequests, exportRequestLines, showRequest, showConversation },
  ...{ removeConversations, createPlaygroundToken },
};
