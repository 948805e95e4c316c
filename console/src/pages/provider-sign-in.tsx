import { useMutation, useQuery } from "@tanstack/react-query";
import { LogIn } from "lucide-react";
import { useLocation } from "wouter";
import { ApiFailure, send } from "../api/client.ts";
import { serviceFacts, session } from "../api/queries.ts";
import type { SignInAddress } from "../api/types.ts";
import { Button } from "../ui/button.tsx";
import { Failure } from "../ui/states.tsx";

/** Entry of the tab's own storage with the page to return to. A window that was opened for a sign-in has none. */
export const RETURN_KEY = "tollgate-return";
const WINDOW = "popup,width=520,height=720";
const AWAITED_MS = 2000;

interface ProviderButtonsProps {
  /** True if the page must stay as it is: then another window asks the provider. */
  inNewWindow?: boolean;
  /** True to ask the provider for another account than the one that it knows. */
  another?: boolean;
}

/** A button for each identity provider. */
export function ProviderButtons({ inNewWindow = false, another = false }: ProviderButtonsProps) {
  const { data: service } = useQuery(serviceFacts);
  const [path] = useLocation();
  const begin = useMutation({
    mutationFn: async ({ issuer, page }: { issuer: string; page: Window | null }) => {
      if (page === null) {
        const text = "The browser blocked the sign-in window. Allow pop-ups, or sign in with a token.";
        throw new ApiFailure(0, text, { code: "window_blocked" });
      }
      const body = { issuer, ...(another && { prompt: "login" }) };
      const { url } = await send<SignInAddress>("POST", "/admin/v1/session/authorization", body);
      page.location.assign(url);
    },
    meta: { signsIn: true },
    onError: (_error, { page }) => {
      if (page !== window) page?.close();
    },
  });
  // The other window signs this one in, too.
  useQuery({ ...session, refetchInterval: inNewWindow && begin.isSuccess ? AWAITED_MS : false });
  const start = (issuer: string) => {
    sessionStorage.removeItem(RETURN_KEY);
    if (!inNewWindow) sessionStorage.setItem(RETURN_KEY, path === "/sign-in" ? "/" : path + location.search);
    begin.mutate({ issuer, page: inNewWindow ? window.open("about:blank", "_blank", WINDOW) : window });
  };
  const verb = another ? "Use another account at" : "Sign in with";
  return (
    <>
      {service?.identity_providers.map(({ issuer, name }) => (
        <Button key={issuer} icon={LogIn} busy={begin.isPending} onClick={() => start(issuer)}>
          {`${verb} ${name}`}
        </Button>
      ))}
      {begin.isError && <Failure error={begin.error} />}
    </>
  );
}
