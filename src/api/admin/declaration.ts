import { type Static, type TSchema, Type } from "typebox";
import { OptionalKeys } from "../schema.ts";
import { compileCheck } from "../validation.ts";
import { LINE, LINE_WORDS } from "../wording.ts";
import { NewBudget } from "./budget.ts";
import { Id, PositiveAmount, Strict } from "./common.ts";
import { NewAllowance, NewGrant } from "./credits.ts";
import { OrganizationChange } from "./organization.ts";
import { NewToken } from "./token.ts";

const { organization_id: _, ...TOKEN_TERMS } = NewToken.properties;
const Entries = <T extends Record<string, TSchema>>(terms: T) => Type.Array(Strict(terms), { maxItems: 1_000 });
const REFERENCE = { reference: Type.String({ pattern: LINE, description: LINE_WORDS }) };
const REMOVED = OptionalKeys({ removed: Type.Literal(true) });

/** An organization as a file declares it. Absent fields stay as they are. */
const OrganizationDeclaration = Strict({
  ...OptionalKeys({ id: Id }),
  ...OrganizationChange.properties,
  ...OptionalKeys({
    tokens: Entries({ ...TOKEN_TERMS, ...REMOVED }),
    budgets: Entries({ ...NewBudget.properties, ...OptionalKeys({ amount: PositiveAmount }), ...REMOVED }),
    allowances: Entries({ ...NewAllowance.properties, ...REFERENCE, ...REMOVED }),
    grants: Entries({ ...NewGrant.properties, ...REFERENCE }),
  }),
});
export type OrganizationDeclaration = Static<typeof OrganizationDeclaration>;

export const checkDeclaration = compileCheck(OrganizationDeclaration);
/** Checks a document that lists declarations, but not the entries of the list. */
export const checkDocument = compileCheck(Strict({ organizations: Type.Array(Type.Unknown(), { minItems: 1 }) }));
