import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { BASE_PATH } from "../base-path.ts";
import { SignInForm } from "../pages/sign-in.tsx";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";

const stay = () => {};

/** Asks for a sign-in over the page, which keeps everything that was typed. Afterwards the page fetches its data again. */
export function SessionEnded() {
  const client = useQueryClient();
  useEffect(
    () => () => {
      void client.invalidateQueries({ predicate: ({ queryKey: [what] }) => what !== "session" });
    },
    [client],
  );
  return (
    <Dialog title="Sign in to continue" isLocked onClose={stay} onEscape={stay}>
      <div className="dialog-body">
        <p>Your session has ended. What you have entered on this page is kept.</p>
        <SignInForm inNewWindow />
        <div>
          <Button look="quiet" onClick={() => location.assign(`${BASE_PATH}/`)}>
            Leave this page
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
