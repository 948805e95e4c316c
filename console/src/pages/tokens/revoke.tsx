import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Token } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Facts } from "../../ui/page.tsx";
import { Ago } from "../../ui/values.tsx";

/** Asks for confirmation, and says what will stop working. */
export function RevokeToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/revoke`;
  const revoke = useAction((_: undefined, key) => send<Token>("POST", path, {}, key), ["tokens", "overview"], onClose);
  return (
    <DialogForm
      title={`Revoke ${token.name}?`}
      action="Revoke token"
      danger
      attempt={revoke}
      onSubmit={() => revoke.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        Requests with this token are refused with 401 within 1 second on one node and within 5 seconds on all nodes.
        Answers in progress are completed. This cannot be undone. To replace a token without downtime, rotate it.
      </p>
      <Facts
        facts={[
          ["Token", <span key="prefix" className="mono">{`${token.prefix}…`}</span>],
          ["Organization", token.organization_name],
          ["Last used", <Ago key="used" at={token.last_used_at} never="Never" />],
        ]}
      />
    </DialogForm>
  );
}
