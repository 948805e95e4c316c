import { Type } from "typebox";
import { Count, Group, IntegerIn, NumberIn, OptionalKeys } from "./upstream-schema.ts";

/** Prompts and answers. */
export const ConversationsSchema = Group(
  {
    keepDays: Count(3_650, {
      default: 30,
      description: "Days for which prompts and answers are stored, for organizations with storage enabled.",
    }),
    limitBytes: IntegerIn(1024, 1024 * 1024, {
      default: 256 * 1024,
      description: "Maximum size of a stored conversation; longer ones are truncated.",
    }),
  },
  { reload: true },
);

/** Items of responses. */
export const Responses = Group(
  {
    keepHours: IntegerIn(0, 720, {
      default: 24,
      description: "Hours for which items of responses are kept for requests that refer to them; 0: they are not kept.",
    }),
    limitBytes: IntegerIn(1024 * 1024, 1024 * 1024 * 1024, {
      default: 32 * 1024 * 1024,
      description: "Maximum size of what is kept for one token; the oldest items are removed first.",
    }),
  },
  { reload: true },
);

/** Requests and audit records. */
export const RetentionSchema = Group(
  OptionalKeys({
    requestMonths: Count(1_200, {
      description:
        "Months for which ended requests are stored; older months become one sum per organization. Absent: for ever.",
    }),
    auditDays: Count(36_500, { description: "Days for which audit records are stored. Absent: for ever." }),
  }),
  { reload: true },
);

/** Delivery of warnings. */
export const WarningsSchema = Group({
  allowPrivateAddresses: Type.Boolean({
    reload: true,
    default: false,
    description:
      "True to let receivers of the service have private and loopback addresses, too, and http:// addresses of this machine.",
  }),
  forecastDays: Count(90, {
    ...{ reload: true, default: 7 },
    description: "Days before the forecast end of an organization's credits at which it is warned.",
  }),
  tokenExpiryDays: Count(90, {
    ...{ reload: true, default: 7 },
    description: "Days before the expiry of a token at which its organization is warned.",
  }),
  unusualFactor: NumberIn(2, 1_000, {
    ...{ reload: true, default: 10 },
    description: "Multiple of the usual spending of an hour above which an organization is warned.",
  }),
  ...OptionalKeys({
    smtp: Type.String({
      format: "smtp-url",
      description: "Mail server for warnings: smtps://user:password@host, or smtp:// with STARTTLS.",
    }),
    mailFrom: Type.String({
      format: "mail-address",
      description: "Sender of these mails. Required with `warnings.smtp`.",
    }),
  }),
});

const Line = (description: string) =>
  Type.String({ pattern: "^[^\\p{Cc}]{1,200}$", allowed: "1 to 200 characters on one line", description });

/** Monthly statements. */
export const StatementsSchema = Group(
  {
    numberPrefix: Type.String({
      pattern: "^([0-9A-Za-z-]{0,19}[A-Za-z-])?$",
      allowed: "at most 20 letters, digits and hyphens that do not end in a digit",
      default: "ST-",
      description: "Text before the number of a new statement, such as ACME-. If it changes, the numbers continue.",
    }),
    mail: Type.Boolean({
      default: false,
      description: "True to send each new statement to the contacts of its organization. Requires `warnings.smtp`.",
    }),
    letterhead: Group(
      OptionalKeys({
        name: Line("Name of the company that issues the statements."),
        address: Type.Array(Line("A line of its address."), { description: "Lines of its address." }),
        taxId: Line("Its tax number."),
        footer: Line("Text at the end of a statement, such as a bank account."),
      }),
    ),
  },
  { reload: true },
);

export const LedgerSchema = Group({
  holdSeconds: NumberIn(0.1, 3600, {
    default: 120,
    description: "Time after which a hold expires if it is not renewed.",
  }),
  renewSeconds: NumberIn(0.05, 3600, {
    default: 10,
    description: "Interval in which running requests renew their holds.",
  }),
  sweepSeconds: NumberIn(0.05, 3600, {
    default: 10,
    description: "Interval at which expired holds are ended, and due grants, allowances and debts are booked.",
  }),
  recoverySeconds: NumberIn(0, 86_400, {
    default: 480,
    description:
      "Time after its expiry for which another process's hold is not ended, because that process may still be running without a connection to the database. PostgreSQL only. With 0, credits are released sooner: see docs/ledger.md.",
  }),
});
