import { beginSignIn } from "./begin-sign-in.ts";
import { blockIdentity, unblockIdentity } from "./block-identity.ts";
import { changeBudget } from "./change-budget.ts";
import { changeOrganization } from "./change-organization.ts";
import { changeReceiver } from "./change-receiver.ts";
import { changeToken } from "./change-token.ts";
import { completeSignIn } from "./complete-sign-in.ts";
import { createAllowance } from "./create-allowance.ts";
import { createBudget } from "./create-budget.ts";
import { createCredit } from "./create-credit.ts";
import { createGrant } from "./create-grant.ts";
import { createOperator } from "./create-operator.ts";
import { createOrganization } from "./create-organization.ts";
import { createPlaygroundToken } from "./create-playground-token.ts";
import { createReceiver } from "./create-receiver.ts";
import { createRevocation } from "./create-revocation.ts";
import { createToken } from "./create-token.ts";
import { deleteBudget } from "./delete-budget.ts";
import { deleteReceiver } from "./delete-receiver.ts";
import { endAllowance } from "./end-allowance.ts";
import { endSession } from "./end-session.ts";
import { exportRequestLines, exportRequests } from "./export-requests.ts";
import { exportStatement } from "./export-statement.ts";
import { listAllowances } from "./list-allowances.ts";
import { listAudit } from "./list-audit.ts";
import { listBudgets } from "./list-budgets.ts";
import { listDeliveries } from "./list-deliveries.ts";
import { listGrants } from "./list-grants.ts";
import { listIdentities } from "./list-identities.ts";
import { listModelsWithRoutes } from "./list-models.ts";
import { listOperators } from "./list-operators.ts";
import { listOrganizations } from "./list-organizations.ts";
import { listReceivers } from "./list-receivers.ts";
import { listRequests } from "./list-requests.ts";
import { listSessions } from "./list-sessions.ts";
import { listTokens } from "./list-tokens.ts";
import type { Operation } from "./operation.ts";
import { raiseBudget } from "./raise-budget.ts";
import { removeConversations } from "./remove-conversations.ts";
import { replayDelivery } from "./replay-delivery.ts";
import { resumeRoute } from "./resume-route.ts";
import { revokeOperator } from "./revoke-operator.ts";
import { revokeToken } from "./revoke-token.ts";
import { rotateReceiverSecret } from "./rotate-receiver-secret.ts";
import { rotateToken } from "./rotate-token.ts";
import { search } from "./search.ts";
import { showBudget } from "./show-budget.ts";
import { showConversation } from "./show-conversation.ts";
import { showOrganization } from "./show-organization.ts";
import { showOverview } from "./show-overview.ts";
import { showRequest } from "./show-request.ts";
import { showService } from "./show-service.ts";
import { showSession } from "./show-session.ts";
import { showStatement } from "./show-statement.ts";
import { showToken } from "./show-token.ts";
import { signIn } from "./sign-in.ts";
import { signOut } from "./sign-out.ts";
import { sumRequests } from "./sum-requests.ts";
import { testReceiver } from "./test-receiver.ts";

/** Every operation of the admin API by its id, in the order of the documentation. */
export const operations: Readonly<Record<string, Operation>> = {
  ...{ showService, signIn, beginSignIn, completeSignIn, showSession, signOut },
  ...{ listOperators, createOperator, revokeOperator, listSessions, endSession },
  ...{ listIdentities, blockIdentity, unblockIdentity },
  ...{ showOverview, search, listAudit, listModelsWithRoutes, resumeRoute },
  ...{ listOrganizations, createOrganization, showOrganization, changeOrganization },
  ...{ listGrants, createGrant, createRevocation, createCredit, listAllowances, createAllowance, endAllowance },
  ...{ listBudgets, createBudget, showBudget, changeBudget, deleteBudget, raiseBudget },
  ...{ showStatement, exportStatement },
  ...{ listReceivers, createReceiver, changeReceiver, deleteReceiver, rotateReceiverSecret, testReceiver },
  ...{ listDeliveries, replayDelivery },
  ...{ listTokens, createToken, showToken, changeToken, rotateToken, revokeToken },
  ...{
    listRequests,
    sumRequests,
    exportRequests,
    exportRequestLines,
    showRequest,
    showConversation,
    removeConversations,
    createPlaygroundToken,
  },
};
