import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, useLocation } from "wouter";
import { beginSession } from "../api/actions.ts";
import { ApiFailure, send } from "../api/client.ts";
import type { Session } from "../api/types.ts";
import { Failure } from "../ui/states.tsx";
import { ProviderButtons, RETURN_KEY } from "./provider-sign-in.tsx";
import { SignInFrame } from "./sign-in.tsx";

/** The page to which an identity provider sends the browser back. */
export function SignInCallback() {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const { mutate, ...complete } = useMutation({
    mutationFn: (query: string) => send<Session>("POST", "/admin/v1/session/callback", { query }),
    meta: { signsIn: true },
    onSuccess: async (made) => {
      await beginSession(client, made);
      const path = sessionStorage.getItem(RETURN_KEY);
      sessionStorage.removeItem(RETURN_KEY);
      if (path === null) close();
      else navigate(path, { replace: true });
    },
  });
  useEffect(() => {
    const query = location.search.slice(1);
    if (query === "") {
      navigate("/", { replace: true });
      return;
    }
    // A code belongs neither into the history nor into a bookmark.
    history.replaceState(null, "", location.pathname);
    mutate(query);
  }, [mutate, navigate]);
  const { error, isSuccess } = complete;
  if (error !== null) {
    const hasNoAccess = error instanceof ApiFailure && (error.code === "no_role" || error.code === "account_blocked");
    return (
      <SignInFrame text="The sign-in was not completed" content={<Refused error={error} another={hasNoAccess} />}>
        <p>
          <Link href="/">Other ways to sign in</Link>
        </p>
      </SignInFrame>
    );
  }
  const text = isSuccess ? "You are signed in. You can close this window." : "Signing in …";
  return (
    <SignInFrame text={text} content={null}>
      {isSuccess && <Link href="/">Open the console</Link>}
    </SignInFrame>
  );
}

function Refused({ error, another }: { error: unknown; another: boolean }) {
  return (
    <div className="stack">
      <Failure error={error} />
      <ProviderButtons another={another} />
    </div>
  );
}
