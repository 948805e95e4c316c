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

function change(table: string, values: string, condition = "1 = 1"): (used: Used) => string {
  return (used) => `update ${table} set ${values} ${ofOrganization(used)} and ${condition}`;
}

function changeHold(values: string): (used: Used) => string {
  return (used) => `update hold set ${values} ${ofRequest(used, "open")}`;
}

function changeRequest(values: string, hold: keyof Used = "charged"): (used: Used) => string {
  return (used) => `update request set ${values} ${ofRequest(used, hold)}`;
}

function changeLate(values: string): (used: Used) => string {
  return (used) => `update adjustment set ${values} ${ofLate(used)}`;
}

function adjustmentOf({ organizationId }: Used, kind: string, amount: number, rest = "null, null"): string {
  const columns = "organization_id, id, kind, amount, draws, is_all, hold_id, token_id, made_at";
  return `insert into adjustment (${columns}) values ('${organizationId}', 'extra', '${kind}', ${amount}, '[]', 0, ${rest}, 1)`;
}

/** Lets requests say that they are retries of another one. */
function repeats(of: keyof Used, ...retries: (keyof Used)[]): (used: Used) => string {
  return (used) => retries.map((retry) => changeRequest(`retry = '["${used[of]}","1"]'`, retry)(used)).join("; ");
}

/** Changes the counter of the budget that every request recorded. */
function changeUse(values: string): (used: Used) => string {
  return change("budget_use", values);
}

function keyOf({ organizationId }: Used, holdId: string, answer = "null"): string {
  const columns = "organization_id, caller_id, key, fingerprint, hold_id, answer, created_at, expires_at";
  return `insert into idempotency_key (${columns}) values ('${organizationId}', 'tok_first', 'extra', 'f', '${holdId}', ${answer}, 1, 2)`;
}

function deleteKey(key: string): (used: Used) => string {
  return (used) => `delete from idempotency_key ${ofOrganization(used)} and key = '${key}'`;
}

const BALANCE_DAMAGES: Damage[] = [
  ["credits appear in the balance", 1, change("balance", "granted = granted + 1, available = available + 1")],
  ["the parts of a balance do not add up", 1, change("balance", "expired = expired + 1")],
  ["a recorded balance of the statement is wrong", 3, change("statement_balance", "balance = balance + 1")],
  ["a balance is gone", 1, (used) => `delete from balance ${ofOrganization(used)}`],
  ["more is held than the holds say", 2, change("balance", "held = held + 1, available = available - 1")],
  ["more is spent than the requests say", 3, change("balance", "spent = spent + 1, available = available - 1")],
  ["the available amount is below 0", 6, change("balance", "available = -1")],
  ["the next change is forgotten", 10, change("balance", "next_change_at = null")],
  ["the next change is too late", 10, change("balance", "next_change_at = next_change_at + 1")],
];

const GRANT_DAMAGES: Damage[] = [
  ["credits appear in a grant", 1, change("credit_grant", "remaining = remaining + 1", "remaining > 0")],
  ["a grant is larger than it was", 1, change("credit_grant", "amount = amount + 1", "state = 'active'")],
  [
    "a grant is gone",
    2,
    (used) => `delete from credit_grant ${ofOrganization(used)} and source = 'grant' and state = 'active'`,
  ],
  [
    "a grant is another organization's",
    2,
    change("credit_grant", "organization_id = 'org_absent'", "source = 'grant' and state = 'active'"),
  ],
  ["a grant was never revoked", 1, change("credit_grant", "revoked = 0", "revoked > 0")],
  [
    "an expired grant is active again",
    1,
    change("credit_grant", "state = 'active', remaining = 1, is_used_up = 0", "state = 'expired'"),
  ],
  ["a pending grant is in force", 1, change("credit_grant", "state = 'active'", "state = 'pending'")],
  ["a grant in force is pending", 1, change("credit_grant", "state = 'pending'", "state = 'active'")],
  ["a credit became a grant", 1, change("credit_grant", "source = 'grant'", "source = 'credit'")],
  ["a grant became a credit", 3, change("credit_grant", "source = 'credit'", "state = 'active' and source = 'grant'")],
  ["a grant expires earlier than the balance knows", 10, change("credit_grant", "expires_at = 1", "remaining > 0")],
];

const HOLD_DAMAGES: Damage[] = [
  ["an open hold is larger than what is held", 2, changeHold("amount = amount + 1"), "open"],
  ["an open hold draws on nothing", 2, changeHold("draws = '[]'"), "open"],
  ["an open hold draws on a grant that does not exist", 2, changeHold(`draws = '[["absent","10"]]'`)],
  ["an open hold is gone", 2, (used) => `delete from hold ${ofRequest(used, "open")}`],
  [
    "an open hold has ended",
    7,
    (used) => `update hold set id = '${used.charged}' ${ofRequest(used, "open")}`,
    "charged",
  ],
  ["an open hold is long overdue", 8, changeHold("expires_at = expires_at - 700000"), "open"],
  ["an open hold expires in the far future", 8, changeHold("expires_at = expires_at + 90000000"), "open"],
  ["an open hold is of another organization", 2, changeHold("organization_id = 'org_absent'")],
  ["an open hold lost its key", 9, changeHold(`details = replace(details, '"open"', 'null')`), "open"],
];

const REQUEST_DAMAGES: Damage[] = [
  ["a request costs less than was spent", 3, changeRequest("cost = cost - 1")],
  ["a request costs less than its tokens", 4, changeRequest("cost = cost - 1"), "charged"],
  ["a request has more tokens than were charged", 4, changeRequest("output_tokens = output_tokens + 1"), "charged"],
  ["a request has another price", 4, changeRequest("charge = replace(charge, '@1000000', '@2000000')"), "charged"],
  ["a request is charged for more tokens", 4, changeRequest("charge = replace(charge, 'o', 'o1')"), "charged"],
  ["a request has a shortfall", 4, changeRequest("shortfall = 1"), "charged"],
  ["a charged request is released", 4, changeRequest("ending = 'released'"), "charged"],
  ["a released request is charged", 4, changeRequest("ending = 'complete'", "released"), "released"],
  ["a released request has a shortfall", 4, changeRequest("shortfall = 1", "released"), "released"],
  ["a request draws on nothing", 2, changeRequest("draws = '[]'"), "charged"],
  ["a request draws on a grant that does not exist", 2, changeRequest(`draws = '[["absent","7"]]'`)],
  ["a request is gone", 3, (used) => `delete from request ${ofRequest(used, "charged")}`],
  ["a recovered request is gone", 7, (used) => `delete from request ${ofRequest(used, "late")}`, "late"],
  ["a request that was settled late was not recovered", 7, changeRequest("ending = 'complete'", "late"), "late"],
  ["a request is hidden from the statement", 3, changeRequest("is_late = 1"), "charged"],
  ["a request is moved in time", 3, changeRequest("ended_at = ended_at - 200000000"), "charged"],
  ["a request costs less than nothing", 6, changeRequest("cost = -1"), "charged"],
  ["a request is of another token", 3, changeRequest("token_id = 'tok_other'")],
  ["a request lost its key", 9, changeRequest("idempotency_key = null"), "charged"],
  [
    "a key belongs to another caller",
    9,
    change("idempotency_key", "caller_id = 'tok_other'", "key = 'charged'"),
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
  ["a credit names a request that does not exist", 7, change("adjustment", "hold_id = 'absent'", "kind = 'credit'")],
  ["a credit names another token", 3, change("adjustment", "token_id = 'tok_other'", "kind = 'credit'"), "charged"],
  ["a credit is gone", 3, (used) => `delete from adjustment ${ofKind(used, "credit")}`],
  ["a credit is smaller", 1, change("adjustment", "amount = amount - 1", "kind = 'credit'")],
  ["a revocation is gone", 1, (used) => `delete from adjustment ${ofKind(used, "revoke")}`],
  ["a lapse is gone", 1, (used) => `delete from adjustment ${ofKind(used, "lapse")}`],
  ["a lapse is larger", 2, change("adjustment", "amount = amount + 1", "kind = 'lapse'")],
  ["a late settlement is gone", 3, (used) => `delete from adjustment ${ofLate(used)}`],
  ["a late settlement costs more", 4, changeLate("amount = amount + 1"), "late"],
  ["a late settlement costs less", 4, changeLate("amount = amount - 1"), "late"],
  ["a late settlement has fewer tokens", 4, changeLate("output_tokens = output_tokens - 1"), "late"],
  ["a late settlement has another price", 4, changeLate("settlement = replace(settlement, '@1', '@2')"), "late"],
  [
    "a late settlement is charged for other lines",
    11,
    changeLate("settlement = replace(settlement, '@1', '@x')"),
    "late",
  ],
  ["a late settlement draws on nothing", 2, changeLate("draws = '[]'"), "late"],
  [
    "a late settlement belongs to a charged request",
    7,
    (used) => `update adjustment set hold_id = '${used.charged}' ${ofLate(used)}`,
    "charged",
  ],
];

const TIME_DAMAGES: Damage[] = [
  ["a request ended before it was made", 13, changeRequest("made_at = ended_at + 1"), "charged"],
  ["a request ended in the future", 13, changeRequest("ended_at = ended_at + 70000000"), "charged"],
  ["a request was made long before the time in its id", 13, changeRequest("made_at = made_at - 3700000"), "charged"],
  ["a period in the future is closed", 13, change("balance", "closed_before = 9000000000000")],
  [
    "a key is older than its request",
    13,
    change("idempotency_key", "created_at = created_at - 1", "key = 'open'"),
    "open",
  ],
  ["a key is kept for longer than a day", 9, change("idempotency_key", "expires_at = created_at + 86400001")],
  ["the key of a charged request is gone", 9, deleteKey("charged"), "charged"],
  ["the key of a running request is gone", 9, deleteKey("open"), "open"],
  ["a bounded request has no report", 4, changeRequest("basis = 'bounded'"), "charged"],
];

const OTHER_DAMAGES: Damage[] = [
  ["a budget holds more than its open holds", 16, changeUse("held = held + 1")],
  ["a budget has spent less than was charged to it", 16, changeUse("spent = spent - 1")],
  ["a budget began with more than it did", 16, changeUse("opening = opening + 1")],
  ["a budget has spent less than nothing", 6, changeUse("spent = -1")],
  ["a counter is of no window of its budget", 10, changeUse("window_at = window_at + 1")],
  ["a counter is of a budget that does not exist", 10, change("budget", "id = 'absent'")],
  ["the counter that an open hold recorded is gone", 16, (used) => `delete from budget_use ${ofOrganization(used)}`],
  ["budgets are not in force", 16, change("balance", "budget_version = 0")],
  ["a charge counts in no budget", 16, changeRequest("budgets = null")],
  ["a retry repeats a request that does not exist", 17, changeRequest(`retry = '["absent","1"]'`), "charged"],
  ["a retry is credited what no attempt was charged", 17, changeRequest(`retry = '["absent","0"]'`), "charged"],
  ["a retry repeats a complete answer", 17, repeats("charged", "released"), "released"],
  ["two retries repeat one attempt", 17, repeats("late", "charged", "released")],
  ["a key names a request that came without it", 9, (used) => keyOf(used, used.expired), "expired"],
  ["a key names no request", 9, (used) => keyOf(used, "absent")],
  ["a key names a released request", 9, (used) => keyOf(used, used.released), "released"],
  ["a running request has an answer", 9, change("idempotency_key", `answer = '"x"'`, "key = 'open'"), "open"],
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
  ...TIME_DAMAGES,
  ...OTHER_DAMAGES,
];
