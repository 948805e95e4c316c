import { idCursor, pageOf, toIdentity } from "../admin/directory.ts";
import { identityRowOf, idOfPerson } from "../admin/token.ts";
import type { Identity } from "../api/admin/operator.ts";
import { command, jsonOf, required, toggle } from "./command.ts";
import { type Core, found, invalidValue, rowRecord, shortText } from "./core.ts";
import { operation, sharedOperation } from "./operation.ts";

export const listIdentities = sharedOperation({
  route: "GET /identities",
  permission: "identities:read",
  summary: "List the people and callers whom issuers identified, and those who are blocked",
  query: (s) => s.Strict({ ...s.PageQuery, status: s.Type.Optional(s.Type.Enum(["active", "blocked"])) }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Identity) },
  async handle({ identityRows }, { query: { status = null }, page: { cursor, limit } }) {
    const rows = await identityRows.identities({ after: idCursor(cursor, "idn"), limit: limit + 1, status });
    return pageOf(rows, limit, toIdentity, ({ id }) => id);
  },
  commands: (make) => [
    make.list({
      usage: "identity list",
      flags: { blocked: toggle("--blocked", "only those who are blocked") },
      call: ({ blocked }) => ({ query: blocked ? { status: "blocked" } : {} }),
      columns: {
        ID: ({ id }) => id,
        ISSUER: ({ issuer }) => issuer,
        SUBJECT: ({ subject }) => subject,
        NAME: ({ name }) => name ?? "-",
        STATUS: ({ status, blocked_at }) => (blocked_at === null ? status : `blocked ${blocked_at}`),
      },
    }),
  ],
});

const FLAGS = {
  issuer: required("--issuer <url>", "issuer, as in the claim iss"),
  subject: required("--subject <subject>", "subject, as in the claim sub"),
};

export const blockIdentity = operation({
  route: "POST /identities/block",
  permission: "identities:block",
  summary: "Block a person or a caller of an issuer everywhere, with the tokens that they created",
  body: (s) => s.IdentityName,
  answer: { status: 200, description: "The identity as it is now.", schema: (s) => s.Identity },
  async handle(services, { body }) {
    const { issuer } = body;
    const issuers = (await services.issuers()).map((settings) => settings.issuer);
    if (issuers.includes(issuer) || (await isSeen(services, body))) return block(services, body);
    const allowed = issuers.length === 0 ? "a configured one, and none is" : `one of: ${issuers.join(", ")}`;
    throw invalidValue("issuer", shortText(issuer), allowed);
  },
  commands: [
    command({
      usage: "identity block",
      flags: FLAGS,
      async run(services, name) {
        const isNew = !(await isSeen(services, name));
        const identity = await block(services, name);
        const done = `${identity.subject} of ${identity.issuer} (${identity.id}) has been blocked since ${identity.blocked_at}.`;
        // Commands do not read the configured issuers.
        const hint =
          " The service has never seen this account: check that issuer and subject are exactly its iss and sub.";
        return { json: jsonOf(identity), text: isNew ? done + hint : done };
      },
    }),
  ],
});

export const unblockIdentity = sharedOperation({
  route: "POST /identities/unblock",
  permission: "identities:block",
  summary: "Let a blocked person or caller of an issuer in again, with the tokens that they created",
  body: (s) => s.IdentityName,
  answer: { status: 200, description: "The identity as it is now.", schema: (s) => s.Identity },
  // A repetition changes nothing.
  async handle(core, { body: { issuer, subject } }) {
    const row = identityRowOf(issuer, subject, core.clock());
    await identity(core, row.id);
    await core.identityRows.unblockIdentity(row.id, recordOf(core, "identity.unblock", row));
    return identity(core, row.id);
  },
  commands: (make) => [
    make.command({
      usage: "identity unblock",
      flags: FLAGS,
      text: ({ id, issuer, subject }) => `${subject} of ${issuer} (${id}) is not blocked.`,
    }),
  ],
});

type IdentityName = Pick<Identity, "issuer" | "subject">;

async function isSeen({ identityRows }: Core, name: IdentityName): Promise<boolean> {
  return (await identityRows.identity(idOfPerson(name))) !== undefined;
}

/** Blocks an identity, also one that was never seen. A repetition changes nothing. */
async function block(core: Core, { issuer, subject }: IdentityName): Promise<Identity> {
  const atMs = core.clock();
  const row = identityRowOf(issuer, subject, atMs);
  await core.identityRows.blockIdentity(row, atMs, recordOf(core, "identity.block", row));
  return identity(core, row.id);
}

function recordOf(core: Core, action: string, { id, issuer, subject }: IdentityName & { id: string }) {
  return rowRecord(core, action, { organizationId: null, id }, { after: { issuer, subject } });
}

async function identity({ identityRows }: Core, id: string): Promise<Identity> {
  return toIdentity(await found(identityRows.identity(id), { kind: "identity", id }));
}
