import type { AuditEntry } from "../../api/types.ts";

const ACTIONS: Record<string, string> = {
  "organization.create": "Organization created",
  "organization.change": "Organization changed",
  "organization.erase": "Organization erased",
  "token.create": "Token created",
  "token.change": "Token changed",
  "token.rotate": "Token rotated",
  "token.revoke": "Token revoked",
  "admin_token.create": "Admin token created",
  "admin_token.replace": "Admin token replaced",
  "session.sign_in": "Signed in",
  "session.sign_in_failed": "Sign-in failed",
  "session.sign_out": "Signed out",
  "identity.block": "Account blocked",
  "identity.unblock": "Account unblocked",
  "session.end": "Session ended by an operator",
  "playground_token.create": "Playground token created",
  "credits.grant": "Credits granted",
  "credits.revoke": "Credits revoked",
  "credits.credit": "Credits refunded",
  "credits.request": "Credits requested",
  "allowance.create": "Monthly allowance created",
  "allowance.end": "Monthly allowance ended",
  "top_up.set": "Automatic top-up set",
  "top_up.end": "Automatic top-up switched off",
  "top_up.pause": "Automatic top-up paused",
  "top_up.card_setup": "Saving of a card begun",
  "top_up.save_card": "Card saved",
  "top_up.charge": "Charge of an automatic top-up begun",
  "top_up.charge_end": "Charge of an automatic top-up ended",
  "voucher.create": "Vouchers created",
  "voucher.redeem": "Voucher redeemed",
  "voucher.revoke": "Vouchers revoked",
  "receiver.create": "Receiver added",
  "receiver.rotate": "Secret of a receiver replaced",
  "receiver.test": "Test event sent",
  "receiver.replay": "Delivery repeated",
  "route.resume": "Route resumed",
  "store.backup": "Store backed up",
  "conversation.read": "Prompts and answers viewed",
  "conversations.remove": "Prompts and answers deleted",
};

/** Actions whose labels are their own words. */
const REGULAR_ACTIONS = [
  ...["operator.create", "operator.revoke", "receiver.change", "receiver.delete"],
  ...["budget.create", "budget.change", "budget.raise", "budget.delete"],
];

/** Returns the label of an action. One without a label is named by its words if its verb is regular: "Token renamed". */
export function actionLabel(action: string): string {
  const [, first, rest, verb] = /^(\w)(\w*)\.(\w+e)$/.exec(action) ?? [];
  return ACTIONS[action] ?? (first === undefined ? action : `${first.toUpperCase()}${spaced(`${rest}`)} ${verb}d`);
}

/** Every action with its label, sorted by label. */
export const ACTION_OPTIONS = [...Object.keys(ACTIONS), ...REGULAR_ACTIONS]
  .map((action) => [action, actionLabel(action)] as const)
  .toSorted(([, one], [, other]) => (one < other ? -1 : 1));

/** Returns the page of what an entry is about, or the part of its organization's page; null where there is none. */
export function pathOfSubject({ action, subject_id, organization_id }: AuditEntry): string | null {
  const [noun] = action.split(".");
  const page = PAGES_OF_SUBJECTS[noun ?? ""];
  if (page !== undefined) return subject_id === null ? null : `${page}/${encodeURIComponent(subject_id)}`;
  if (organization_id === null) return null;
  const tab = TABS_OF_SUBJECTS[noun ?? ""];
  return `/organizations/${encodeURIComponent(organization_id)}${tab === undefined ? "" : `?tab=${tab}`}`;
}

/** Pages that show one subject, by the first word of its actions. */
const PAGES_OF_SUBJECTS: Record<string, string> = {
  organization: "/organizations",
  token: "/tokens",
  playground_token: "/tokens",
  receiver: "/warnings",
  conversation: "/requests",
};
const TABS_OF_SUBJECTS: Record<string, string> = { budget: "budgets", conversations: "settings" };

/** Converts `expiresAt` and `expires_at` to `expires at`. */
export function spaced(name: string): string {
  return name.replaceAll("_", " ").replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}
