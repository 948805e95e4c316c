import assert from "node:assert/strict";
import { type Attack, assertRefused, authorization, post, type Target } from "./attack.ts";

const CHANGES_AT_ONCE = 20;
const IN_FORCE_EVERYWHERE_MS = 5_000;
const FROM_CONSOLE = { "x-tollgate-console": "1" };

type Answer = Record<string, unknown>;

async function admin(target: Target, method: string, path: string, body?: object): Promise<Answer> {
  const answer = await fetch(`${target.url}/admin/v1${path}`, {
    method,
    headers: {
      ...authorization(target, "admin token"),
      ...(body !== undefined && { "content-type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path} was answered with ${answer.status}: ${text.slice(0, 300)}`);
  return JSON.parse(text) as Answer;
}

/** An organization without credits, and a token of it; they stay behind, the token revoked by the attack. */
async function makeToken(target: Target): Promise<{ organizationId: string; tokenId: string; secret: string }> {
  const organization = await admin(target, "POST", "/organizations", { name: "Attack on administration" });
  const token = await admin(target, "POST", "/tokens", { organization_id: organization.id, name: "attack" });
  return { organizationId: String(organization.id), tokenId: String(token.id), secret: String(token.secret) };
}

async function signIn(target: Target, token: string): Promise<Response> {
  return post(target, "/admin/v1/session", { token }, FROM_CONSOLE);
}

/** Attacks on changes of organizations and tokens, on sessions and on the audit log. */
export const administrationAttacks: readonly Attack[] = [
  {
    title: "Changes of different fields of an organization at the same time are all kept.",
    needs: "admin token",
    async play(target) {
      const { organizationId, tokenId } = await makeToken(target);
      const path = `/organizations/${organizationId}`;
      for (let round = 1; round <= CHANGES_AT_ONCE; round += 1) {
        const status = round % 2 === 1 ? "paused" : "active";
        const limits = { requests_per_minute: round };
        await Promise.all([admin(target, "PATCH", path, { status }), admin(target, "PATCH", path, { limits })]);
        const now = await admin(target, "GET", path);
        assert.deepEqual([now.status, now.limits], [status, limits], "One of two changes at once was lost.");
      }
      await admin(target, "POST", `/tokens/${tokenId}/revoke`);
    },
  },
  {
    title: "A token that is rotated several times at once gets one successor, which a retry names.",
    needs: "admin token",
    async play(target) {
      const { organizationId, tokenId } = await makeToken(target);
      const rotate = () => post(target, `/admin/v1/tokens/${tokenId}/rotate`, {}, authorization(target, "admin token"));
      const answers = await Promise.all(Array.from({ length: CHANGES_AT_ONCE }, rotate));
      assert.equal(answers.filter(({ status }) => status === 201).length, 1, "There is not exactly one successor.");
      await Promise.all(answers.map((answer) => answer.arrayBuffer()));
      const { data } = await admin(target, "GET", `/tokens?organization_id=${organizationId}`);
      const successors = (data as Answer[]).filter(({ id }) => id !== tokenId);
      assert.equal(successors.length, 1);
      const message = await assertRefused(await rotate(), 409, "already_rotated");
      assert.ok(message.includes(String(successors[0]?.id)), "The refusal does not name the successor.");
      for (const id of [tokenId, successors[0]?.id]) await admin(target, "POST", `/tokens/${id}/revoke`);
    },
  },
  {
    title: "A token with the default scopes cannot sign in, and the attempt is recorded without its secret.",
    needs: "admin token",
    async play(target) {
      const { organizationId, tokenId, secret } = await makeToken(target);
      await assertRefused(await signIn(target, secret), 403, "insufficient_scope");
      const audit = await admin(target, "GET", `/audit?organization_id=${organizationId}`);
      const attempt = (audit.data as Answer[]).find(({ action }) => action === "session.sign_in_failed");
      assert.equal(attempt?.subject_id, tokenId, "The refused sign-in was not recorded.");
      assert.ok(!JSON.stringify(audit).includes(secret.slice(-30)), "The record holds the secret.");
      await admin(target, "POST", `/tokens/${tokenId}/revoke`);
    },
  },
  {
    title: "A playground token ends with the session that it was made in.",
    needs: "admin token",
    async play(target) {
      const { organizationId, tokenId } = await makeToken(target);
      const signedIn = await signIn(target, target.adminToken ?? "");
      assert.equal(signedIn.status, 200);
      const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
      const session = { ...FROM_CONSOLE, cookie };
      const minted = await post(target, "/admin/v1/playground/token", { organization_id: organizationId }, session);
      const { token } = (await minted.json()) as { token: string };
      const list = async () => {
        const answer = await fetch(`${target.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
        await answer.arrayBuffer();
        return answer.status;
      };
      assert.equal(await list(), 200);
      await fetch(`${target.url}/admin/v1/session`, { method: "DELETE", headers: session });
      await new Promise((resolve) => setTimeout(resolve, IN_FORCE_EVERYWHERE_MS));
      assert.equal(await list(), 401, "The playground token outlived its session.");
      await admin(target, "POST", `/tokens/${tokenId}/revoke`);
    },
  },
];
