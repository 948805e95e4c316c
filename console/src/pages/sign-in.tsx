import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { Link } from "wouter";
import { beginSession } from "../api/actions.ts";
import { send } from "../api/client.ts";
import type { ServiceFacts, Session } from "../api/types.ts";
import { Brand } from "../shell/brand.tsx";
import { ThemeButton } from "../shell/theme.tsx";
import { Button } from "../ui/button.tsx";
import { TextField } from "../ui/field.tsx";
import { Failure } from "../ui/states.tsx";
import { ProviderButtons } from "./provider-sign-in.tsx";

export function SignIn({ service }: { service: ServiceFacts | undefined }) {
  return (
    <SignInFrame text="Usage, API tokens and models in one place" content={<SignInForm />}>
      <p>
        Operators and auditors: use the admin token that the first start printed, or a token of your own from{" "}
        <code>tollgate operator create</code>.
      </p>
      <p>
        Members: use a token of your organization with the scope <code>console:read</code>.
      </p>
      {service?.guest_playground.open && (
        <p>
          No token? <Link href="/playground">Try the models as a guest</Link>.
        </p>
      )}
    </SignInFrame>
  );
}

/** Page for those who are not signed in: a card with its content, and notes below it. */
export function SignInFrame({ text, content, children }: { text: string; content: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = "Sign in · Tollgate";
  }, []);
  return (
    <main className="center">
      <div className="sign-in">
        <div className="row spread">
          <Brand />
          <ThemeButton />
        </div>
        <section className="card">
          <div className="card-body stack">
            <div>
              <h1>Sign in</h1>
              <p className="soft">{text}</p>
            </div>
            {content}
          </div>
        </section>
        <div className="stack-small small faint">{children}</div>
      </div>
    </main>
  );
}

/** Ways to sign in: the identity providers, and a token. After success the session changes, and with it the page. */
export function SignInForm({ inNewWindow = false }: { inNewWindow?: boolean }) {
  return (
    <div className="stack">
      <ProviderButtons inNewWindow={inNewWindow} />
      <TokenForm />
    </div>
  );
}

function TokenForm() {
  const [token, setToken] = useState("");
  const [isMissing, setMissing] = useState(false);
  const client = useQueryClient();
  const signIn = useMutation({
    mutationFn: (secret: string) => send<Session>("POST", "/admin/v1/session", { token: secret }),
    meta: { signsIn: true },
    onSuccess: (made) => beginSession(client, made),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const secret = token.trim();
    setMissing(secret === "");
    if (secret !== "" && !signIn.isPending) signIn.mutate(secret);
  };
  return (
    <form className="stack" onSubmit={submit} noValidate>
      <TextField
        label="Token"
        type="password"
        name="token"
        autoComplete="current-password"
        spellCheck={false}
        placeholder="tg-admin-… or sk-tg-…"
        value={token}
        onValue={setToken}
        error={isMissing ? "Enter a token." : null}
      />
      {signIn.isError && <Failure error={signIn.error} />}
      <Button type="submit" look="main" busy={signIn.isPending}>
        Sign in
      </Button>
    </form>
  );
}
