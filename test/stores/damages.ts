/** Damages to the tables of the books, each with the invariant that it violates. */
export interface Used {
  organizationId: string;
  open: string;
  released: string;
  charged: string;
  expired: string;
  late: string;
}

/** The fault, the violated invariant, the statement that does the damage, and the request that the report names. */
type Damage = [what: string, invariant: number, sql: (used: Used) => string, hold?: keyof Used];

export const ofOrganization = ({ organizationId }: Used) => `where organization_id = '${organizationId}'`;
const ofRequest = (used: Used, hold: keyof Used) => `${ofOrganization(used)} and id = '${used[hold]}'`;
const ofLate = (used: Used) => `${ofOrganization(used)} and id = 'late_${used.late}'`;
const ofKind = (used: Used, kind: string) => `${ofOrganization(used)} and kind = '${kind}'`;

function adjustmentOf({ organizationId }: Used, kind: string, amount: number, rest = "null, null"): string {
  const columns = "organization_id, id, kind, amount, draws, is_all, hold_id, token_id, made_at";
  return `insert into adjustment (${columns}) values ('${organizationId}', 'extra', '${kind}', ${amount}, '[]', 0, ${rest}, 1)`;
}

function tokenBalanceOf({ organizationId }: Used, token: string, held: number, spent: number): string {
  const columns = "organization_id, token_id, cap, held, spent";
  return `insert into token_balance (${columns}) values ('${organizationId}', '${token}', 9, ${held}, ${spent})`;
}

function keyOf({ organizationId }: Used, holdId: string, answer = "null"): string {
  const columns = "organization_id, key, fingerprint, hold_id, answer, created_at, expires_at";
  return `insert into idempotency_key (${columns}) values ('${organizationId}', 'extra', 'f', '${holdId}', ${answer}, 1, 2)`;
}

const BALANCE_DAMAGES: Damage[] = [
  [
    "credits appear in the balance",
    1,
    (used) => `update balance set granted = granted + 1, available = available + 1 ${ofOrganization(used)}`,
  ],
  [
    "the parts of a balance do not add up",
    1,
    (used) => `update balance set expired = expired + 1 ${ofOrganization(used)}`,
  ],
  [
    "a recorded balance of the statement is wrong",
    3,
    (used) => `update statement_balance set balance = balance + 1 ${ofOrganization(used)}`,
  ],
  ["a balance is gone", 1, (used) => `delete from balance ${ofOrganization(used)}`],
  [
    "more is held than the holds say",
    2,
    (used) => `update balance set held = held + 1, available = available - 1 ${ofOrganization(used)}`,
  ],
  [
    "more is spent than the requests say",
    3,
    (used) => `update balance set spent = spent + 1, available = available - 1 ${ofOrganization(used)}`,
  ],
  ["the available amount is below 0", 6, (used) => `update balance set available = -1 ${ofOrganization(used)}`],
  ["the next change is forgotten", 10, (used) => `update balance set next_change_at = null ${ofOrganization(used)}`],
  [
    "the next change is too late",
    10,
    (used) => `update balance set next_change_at = next_change_at + 1 ${ofOrganization(used)}`,
  ],
];

const GRANT_DAMAGES: Damage[] = [
  [
    "credits appear in a grant",
    1,
    (used) => `update credit_grant set remaining = remaining + 1 ${ofOrganization(used)} and remaining > 0`,
  ],
  [
    "a grant is larger than it was",
    1,
    (used) => `update credit_grant set amount = amount + 1 ${ofOrganization(used)} and state = 'active'`,
  ],
  [
    "a grant is gone",
    2,
    (used) => `delete from credit_grant ${ofOrganization(used)} and source = 'grant' and state = 'active'`,
  ],
  [
    "a grant is another organization's",
    2,
    (used) =>
      `update credit_grant set organization_id = 'org_absent' ${ofOrganization(used)} and source = 'grant' and state = 'active'`,
  ],
  [
    "a grant was never revoked",
    1,
    (used) => `update credit_grant set revoked = 0 ${ofOrganization(used)} and revoked > 0`,
  ],
  [
    "an expired grant is active again",
    1,
    (used) =>
      `update credit_grant set state = 'active', remaining = 1, is_used_up = 0 ${ofOrganization(used)} and state = 'lapsed'`,
  ],
  [
    "a pending grant is in force",
    1,
    (used) => `update credit_grant set state = 'active' ${ofOrganization(used)} and state = 'pending'`,
  ],
  [
    "a grant in force is pending",
    1,
    (used) => `update credit_grant set state = 'pending' ${ofOrganization(used)} and state = 'active'`,
  ],
  [
    "a credit became a grant",
    1,
    (used) => `update credit_grant set source = 'grant' ${ofOrganization(used)} and source = 'credit'`,
  ],
  [
    "a grant became a credit",
    3,
    (used) =>
      `update credit_grant set source = 'credit' ${ofOrganization(used)} and state = 'active' and source = 'grant'`,
  ],
  [
    "a grant expires earlier than the balance knows",
    10,
    (used) => `update credit_grant set expires_at = 1 ${ofOrganization(used)} and remaining > 0`,
  ],
];

const HOLD_DAMAGES: Damage[] = [
  [
    "an open hold is larger than what is held",
    2,
    (used) => `update hold set amount = amount + 1 ${ofRequest(used, "open")}`,
    "open",
  ],
  ["an open hold draws on nothing", 2, (used) => `update hold set draws = '[]' ${ofRequest(used, "open")}`, "open"],
  [
    "an open hold draws on a grant that does not exist",
    2,
    (used) => `update hold set draws = '[["absent","10"]]' ${ofRequest(used, "open")}`,
  ],
  ["an open hold is gone", 2, (used) => `delete from hold ${ofRequest(used, "open")}`],
  [
    "an open hold has ended",
    7,
    (used) => `update hold set id = '${used.charged}' ${ofRequest(used, "open")}`,
    "charged",
  ],
  [
    "an open hold is long overdue",
    8,
    (used) => `update hold set expires_at = expires_at - 160000 ${ofRequest(used, "open")}`,
    "open",
  ],
  [
    "an open hold expires in the far future",
    8,
    (used) => `update hold set expires_at = expires_at + 90000000 ${ofRequest(used, "open")}`,
    "open",
  ],
  [
    "an open hold is of another organization",
    2,
    (used) => `update hold set organization_id = 'org_absent' ${ofRequest(used, "open")}`,
  ],
  [
    "an open hold lost its key",
    9,
    (used) => `update hold set details = replace(details, '"open"', 'null') ${ofRequest(used, "open")}`,
    "open",
  ],
];

const REQUEST_DAMAGES: Damage[] = [
  [
    "a request costs less than was spent",
    3,
    (used) => `update request set cost = cost - 1 ${ofRequest(used, "charged")}`,
  ],
  [
    "a request costs less than its tokens",
    4,
    (used) => `update request set cost = cost - 1 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request has more tokens than were charged",
    4,
    (used) => `update request set output_tokens = output_tokens + 1 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request has another price",
    4,
    (used) => `update request set output_price = output_price * 2 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request has a shortfall",
    4,
    (used) => `update request set shortfall = 1 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a charged request is released",
    4,
    (used) => `update request set ending = 'released' ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a released request is charged",
    4,
    (used) => `update request set ending = 'complete' ${ofRequest(used, "released")}`,
    "released",
  ],
  [
    "a released request has a shortfall",
    4,
    (used) => `update request set shortfall = 1 ${ofRequest(used, "released")}`,
    "released",
  ],
  [
    "a request draws on nothing",
    2,
    (used) => `update request set draws = '[]' ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request draws on a grant that does not exist",
    2,
    (used) => `update request set draws = '[["absent","7"]]' ${ofRequest(used, "charged")}`,
  ],
  ["a request is gone", 3, (used) => `delete from request ${ofRequest(used, "charged")}`],
  ["a recovered request is gone", 7, (used) => `delete from request ${ofRequest(used, "late")}`, "late"],
  [
    "a request that was settled late was not recovered",
    7,
    (used) => `update request set ending = 'complete' ${ofRequest(used, "late")}`,
    "late",
  ],
  [
    "a request is hidden from the statement",
    3,
    (used) => `update request set is_late = 1 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request is moved in time",
    3,
    (used) => `update request set ended_at = ended_at - 200000000 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request costs less than nothing",
    6,
    (used) => `update request set cost = -1 ${ofRequest(used, "charged")}`,
    "charged",
  ],
  [
    "a request is of another token",
    3,
    (used) => `update request set token_id = 'tok_other' ${ofRequest(used, "charged")}`,
  ],
  [
    "a request lost its key",
    9,
    (used) => `update request set idempotency_key = null ${ofRequest(used, "charged")}`,
    "charged",
  ],
];

const ADJUSTMENT_DAMAGES: Damage[] = [
  ["nothing expired", 1, (used) => adjustmentOf(used, "lapse", 3).replace("'[]'", `'[["absent","3"]]'`)],
  ["a revocation belongs to no grant", 2, (used) => adjustmentOf(used, "revoke", 3)],
  ["a credit has no grant", 1, (used) => adjustmentOf(used, "credit", 3)],
  [
    "a credit returns more than the request was charged",
    5,
    (used) => adjustmentOf(used, "credit", 99, `'${used.charged}', 'tok_contract'`),
    "charged",
  ],
  [
    "a credit names a request that does not exist",
    7,
    (used) => `update adjustment set hold_id = 'absent' ${ofKind(used, "credit")}`,
  ],
  [
    "a credit names another token",
    3,
    (used) => `update adjustment set token_id = 'tok_other' ${ofKind(used, "credit")}`,
    "charged",
  ],
  ["a credit is gone", 3, (used) => `delete from adjustment ${ofKind(used, "credit")}`],
  ["a credit is smaller", 1, (used) => `update adjustment set amount = amount - 1 ${ofKind(used, "credit")}`],
  ["a revocation is gone", 1, (used) => `delete from adjustment ${ofKind(used, "revoke")}`],
  ["a lapse is gone", 1, (used) => `delete from adjustment ${ofKind(used, "lapse")}`],
  ["a lapse is larger", 2, (used) => `update adjustment set amount = amount + 1 ${ofKind(used, "lapse")}`],
  ["a late settlement is gone", 3, (used) => `delete from adjustment ${ofLate(used)}`],
  ["a late settlement costs more", 4, (used) => `update adjustment set amount = amount + 1 ${ofLate(used)}`, "late"],
  ["a late settlement costs less", 4, (used) => `update adjustment set amount = amount - 1 ${ofLate(used)}`, "late"],
  [
    "a late settlement has fewer tokens",
    4,
    (used) => `update adjustment set output_tokens = output_tokens - 1 ${ofLate(used)}`,
    "late",
  ],
  ["a late settlement draws on nothing", 2, (used) => `update adjustment set draws = '[]' ${ofLate(used)}`, "late"],
  [
    "a late settlement belongs to a charged request",
    7,
    (used) => `update adjustment set hold_id = '${used.charged}' ${ofLate(used)}`,
    "charged",
  ],
];

const OTHER_DAMAGES: Damage[] = [
  ["a token holds more than its open holds", 2, (used) => tokenBalanceOf(used, "tok", 1, 0)],
  ["a token has spent less than was charged to it", 3, (used) => tokenBalanceOf(used, "tok_contract", 10, 1)],
  ["a token has spent less than nothing", 6, (used) => tokenBalanceOf(used, "tok", 0, -1)],
  [
    "a token shares a cap that does not exist",
    10,
    (used) =>
      `${tokenBalanceOf(used, "tok", 0, 0)}; update token_balance set budget_id = 'absent' ${ofOrganization(used)}`,
  ],
  ["a key names a request that came without it", 9, (used) => keyOf(used, used.expired), "expired"],
  ["a key names no request", 9, (used) => keyOf(used, "absent")],
  ["a key names a released request", 9, (used) => keyOf(used, used.released), "released"],
  [
    "a running request has an answer",
    9,
    (used) => `update idempotency_key set answer = '"x"' ${ofOrganization(used)} and key = 'open'`,
    "open",
  ],
  [
    "a key names another request",
    9,
    (used) => `update idempotency_key set hold_id = '${used.expired}' ${ofOrganization(used)} and key = 'charged'`,
    "expired",
  ],
];

export const DAMAGES = [
  ...BALANCE_DAMAGES,
  ...GRANT_DAMAGES,
  ...HOLD_DAMAGES,
  ...REQUEST_DAMAGES,
  ...ADJUSTMENT_DAMAGES,
  ...OTHER_DAMAGES,
];
