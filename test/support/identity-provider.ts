import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import { Provider } from "oidc-provider";
import { AdminClient, type Answer, cookieOf, FROM_CONSOLE } from "./admin.ts";
import { freePort, type RunningService } from "./service.ts";

/** Claims of the accounts, by login. The login is the subject, and any password is right. */
const ACCOUNTS: Record<string, Record<string, unknown>> = {
  ada: { email: "ada@example.com", email_verified: true, groups: ["platform-team"] },
  eve: { email: "eve@example.com", email_verified: true, groups: ["auditors", "guests"] },
  max: { email: "max@example.com", email_verified: true, tenant: "acme" },
  unverified: { email: "ada@example.com", email_verified: false, preferred_username: "mallory" },
};
export const CLIENT = { clientId: "tollgate", clientSecret: "secret-of-the-console" };
const ROLES = [
  { when: { groups: "platform-team" }, role: "operator" },
  { when: { groups: "auditors" }, role: "auditor" },
];

export interface IdentityProvider {
  issuer: string;
  /** Its entry in `identity.issuers`. */
  settings: { issuer: string; name: string; clientId: string; clientSecret: string; roles: object[] };
  /** Signs with new keys from now on; the earlier ones are gone. */
  rotateKeys(): Promise<void>;
  /** Answers every request with a failure, until the returned function is called. */
  fail(): () => void;
  /** Number of requests to a path so far. */
  requestsTo(path: string): number;
  close(): Promise<void>;
}

/** Starts a provider of OpenID Connect on loopback with a login form, for the consoles at these addresses. */
export async function startIdentityProvider(services: readonly string[], port?: number): Promise<IdentityProvider> {
  const ownPort = port ?? (await freePort());
  const issuer = `http://127.0.0.1:${ownPort}`;
  const paths: string[] = [];
  let handle = await handlerOf(issuer, services);
  let isFailing = false;
  const server = createServer((request, response) => {
    paths.push((request.url ?? "").split("?")[0] ?? "");
    if (isFailing) response.writeHead(500).end();
    else handle(request, response);
  });
  server.listen(ownPort, "127.0.0.1");
  await once(server, "listening");
  return {
    issuer,
    settings: { issuer, name: "Example Login", ...CLIENT, roles: ROLES },
    rotateKeys: async () => {
      handle = await handlerOf(issuer, services);
    },
    fail: () => {
      isFailing = true;
      return () => {
        isFailing = false;
      };
    },
    requestsTo: (path) => paths.filter((one) => one === path).length,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function handlerOf(issuer: string, services: readonly string[]): Promise<RequestListener> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const uris = services.map((url) => `${url}/sign-in`);
  const provider = new Provider(issuer, {
    jwks: { keys: [{ ...(await exportJWK(privateKey)), use: "sig", alg: "RS256" }] },
    cookies: { keys: ["key of the cookies"] },
    ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600 },
    claims: {
      openid: ["sub", "groups", "tenant"],
      email: ["email", "email_verified"],
      profile: ["preferred_username"],
    },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, ...ACCOUNTS[id] }) }),
    clients: [
      {
        client_id: CLIENT.clientId,
        client_secret: CLIENT.clientSecret,
        redirect_uris: uris,
        post_logout_redirect_uris: uris,
      },
    ],
  });
  return provider.callback();
}

/** A browser without scripts: follows redirects, keeps cookies, and submits the provider's forms. */
export class LoginBrowser {
  readonly #cookies = new Map<string, string>();

  /** Signs in at a provider and consents. Returns the query with which it sends the browser back to the console. */
  async login(url: string, account: string): Promise<string> {
    let answer = await this.#follow(url);
    while (typeof answer !== "string") {
      const page = await answer.text();
      const action = /<form[^>]* action="([^"]+)"/.exec(page)?.[1];
      if (action === undefined) throw new Error(`No form on ${answer.url} (${answer.status}): ${page}`);
      const prompt = page.includes('value="login"') ? "login" : "consent";
      const body = new URLSearchParams({ prompt, login: account, password: "any" });
      answer = await this.#follow(new URL(action, answer.url).href, { method: "POST", body });
    }
    return answer;
  }

  /** Returns the page after all redirects, or the query of the console's address. */
  async #follow(address: string, init: RequestInit = {}): Promise<Response | string> {
    let url = new URL(address);
    let options = init;
    for (;;) {
      if (url.pathname === "/sign-in") return url.search.slice(1);
      const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; ");
      const answer = await fetch(url, { ...options, headers: { cookie }, redirect: "manual" });
      for (const line of answer.headers.getSetCookie()) {
        const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
        this.#cookies.set(name, value);
      }
      const location = answer.headers.get("location");
      if (location === null) return answer;
      url = new URL(location, url);
      options = {};
    }
  }
}

/** Signs in to the console as an account of a provider. Returns the answer that sets the cookie of the session. */
export async function signInAt(service: RunningService, issuer: string, account: string): Promise<Answer> {
  const client = new AdminClient(service, FROM_CONSOLE);
  const begun = await client.call<{ url: string }>("POST", "/session/authorization", { issuer });
  const query = await new LoginBrowser().login(begun.body.url, account);
  return client.call("POST", "/session/callback", { query }, { cookie: cookieOf(begun) });
}

/** Name and value of the session's cookie that an answer sets; empty if it sets none. */
export function sessionCookie({ headers }: Pick<Answer, "headers">): string {
  const line = headers.getSetCookie().find((cookie) => cookie.startsWith("tollgate_session="));
  return line?.split(";")[0] ?? "";
}
