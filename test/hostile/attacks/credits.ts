import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { type Attack, assertRefused, authorization, post, type Target } from "./attack.ts";

/** Calls the admin API with the admin token. */
function administer(target: Target, path: string, body: unknown, headers: Record<string, string> = {}) {
  return post(target, `/admin/v1${path}`, body, { ...authorization(target, "admin token"), ...headers });
}

async function newOrganization(target: Target): Promise<string> {
  const { id } = (await (await administer(target, "/organizations", { name: "Attack" })).json()) as { id: string };
  return id;
}

async function availableOf(target: Target, id: string): Promise<number> {
  const headers = authorization(target, "admin token");
  const answer = await fetch(`${target.url}/admin/v1/organizations/${id}`, { headers });
  const { credits } = (await answer.json()) as { credits: { available: number } };
  return credits.available;
}

/** Repetitions and mistakes of an administrator that must not move credits. Each uses an organization of its own. */
export const creditAttacks: readonly Attack[] = [
  {
    title: "A revocation of more than is available, or of no amount, is refused and revokes nothing.",
    needs: "admin token",
    async play(target) {
      const id = await newOrganization(target);
      await administer(target, `/organizations/${id}/grants`, { amount: 810 });
      const revoke = (body: object) => administer(target, `/organizations/${id}/revocations`, body);
      const message = await assertRefused(await revoke({ amount: 5_000_000 }), 400, "invalid_value");
      assert.match(message, /810/);
      await assertRefused(await revoke({}), 400, "missing_required_parameter");
      assert.equal(await availableOf(target, id), 810);
    },
  },
  {
    title: "A used reference with another amount is refused and names what was booked.",
    needs: "admin token",
    async play(target) {
      const id = await newOrganization(target);
      const grant = (amount: number) =>
        administer(target, `/organizations/${id}/grants`, { amount, reference: "invoice 1" });
      const first = (await (await grant(5)).json()) as { id: string };
      const message = await assertRefused(await grant(6), 409, "reference_mismatch");
      assert.ok(message.includes(first.id), message);
      assert.equal((await grant(5)).status, 200);
      assert.equal(await availableOf(target, id), 5);
    },
  },
  {
    title: "A grant that is sent 20 times at once with one Idempotency-Key is booked once.",
    needs: "admin token",
    async play(target) {
      const id = await newOrganization(target);
      const keyed = { "idempotency-key": randomUUID() };
      const send = (amount: number) => administer(target, `/organizations/${id}/grants`, { amount }, keyed);
      const answers = await Promise.all(Array.from({ length: 20 }, () => send(5)));
      for (const { status } of answers) assert.ok(status === 201 || status === 409, `It was answered with ${status}.`);
      await assertRefused(await send(6), 422, "idempotency_mismatch");
      assert.equal((await send(5)).headers.get("x-tollgate-idempotent-replay"), "true");
      assert.equal(await availableOf(target, id), 5);
    },
  },
  {
    title: "A token creation that is repeated with its Idempotency-Key makes no second token and shows no secret.",
    needs: "admin token",
    async play(target) {
      const body = { organization_id: await newOrganization(target), name: "attacked" };
      const keyed = { "idempotency-key": randomUUID() };
      const create = async () =>
        (await (await administer(target, "/tokens", body, keyed)).json()) as { id: string; secret: string | null };
      const [first, again] = [await create(), await create()];
      assert.deepEqual([again.id, again.secret], [first.id, null]);
      const headers = authorization(target, "admin token");
      const list = await fetch(`${target.url}/admin/v1/tokens?organization_id=${body.organization_id}`, { headers });
      assert.equal(((await list.json()) as { data: unknown[] }).data.length, 1);
    },
  },
];
