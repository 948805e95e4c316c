import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { firstAdminToken, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { visit } from "../support/console.ts";
import { ROOT } from "../support/documents.ts";
import { nginxConfiguration } from "../support/nginx.ts";
import {
  freePort,
  makeDirectory,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  startProcess,
} from "../support/service.ts";

const EXAMPLES = join(ROOT, "docs", "examples");
const hasNginx = inject("hasNginx");
const START_TIMEOUT_MS = 60_000;
const JSON_TYPE = { "content-type": "application/json" };

describe.skipIf(!hasNginx)("behind nginx, as the guide's example sets it up", () => {
  let service: ServiceProcess;
  let organization: Organization;
  let nginx: Nginx;

  beforeAll(async () => {
    service = await startProcess({ config: { server: { trustProxy: "127.0.0.1" } } });
    organization = await makeOrganization(service, "50");
    nginx = await startNginx(join(EXAMPLES, "nginx.conf"), service.url);
  });
  afterAll(async () => {
    await nginx?.end();
    await service?.end();
  });

  const signIn = (headers: Record<string, string>) =>
    nginx.fetch("/admin/v1/session", {
      method: "POST",
      headers: { ...JSON_TYPE, "x-tollgate-console": "1", ...headers },
      body: JSON.stringify({ token: firstAdminToken(service) }),
    });
  const complete = (body: object) => ({
    method: "POST",
    headers: { ...JSON_TYPE, authorization: `Bearer ${organization.token}` },
    body: JSON.stringify(body),
  });

  test("the console signs in with a Secure cookie, and browsers are told to use TLS only", async () => {
    const answer = await signIn({ origin: nginx.url, "sec-fetch-site": "same-origin" });
    expect(answer.status).toBe(200);
    expect(answer.headers["set-cookie"]).toEqual([
      expect.stringMatching(/^__Host-tollgate_session=\w+; Path=\/; .*; Secure$/),
    ]);
    expect(answer.headers["strict-transport-security"]).toBe("max-age=31536000");
    const [cookie = ""] = answer.headers["set-cookie"]?.[0]?.split(";") ?? [];
    expect((await nginx.fetch("/admin/v1/organizations", { headers: { cookie } })).status).toBe(200);
  });

  test("a request of another origin is still refused", async () => {
    const answer = await signIn({ origin: "https://evil.example" });
    const forged = await signIn({ origin: "https://evil.example", "x-forwarded-host": "evil.example" });
    expect([answer.status, forged.status]).toEqual([403, 403]);
  });

  test("plain HTTP leads to TLS, and gets neither a Secure cookie nor Strict-Transport-Security", async () => {
    const answer = await fetch(`${nginx.plainUrl}/tokens?status=active`, { redirect: "manual" });
    expect(answer.status).toBe(308);
    expect(answer.headers.get("location")).toBe("https://127.0.0.1/tokens?status=active");
    const direct = await fetch(`${service.url}/`);
    expect(direct.headers.get("strict-transport-security")).toBeNull();
  });

  test("the audit log has the caller's address, not one that the caller made up", async () => {
    const admin = operator(service);
    await nginx.fetch("/admin/v1/organizations", {
      method: "POST",
      headers: { ...JSON_TYPE, ...admin.headers, "x-forwarded-for": "198.51.100.7" },
      body: JSON.stringify({ name: "over nginx" }),
    });
    const { body } = await admin.call<{ data: { actor: object }[] }>(
      "GET",
      "/audit?action=organization.create&limit=1",
    );
    expect(JSON.stringify(body.data[0])).toContain('"127.0.0.1"');
    expect(JSON.stringify(body.data[0])).not.toContain("198.51.100.7");
  });

  test("events of a stream arrive while the answer goes on", async () => {
    const messages = [{ role: "user", content: "silence after 2 tokens 60s" }];
    const answer = await nginx.open(
      "/v1/chat/completions",
      complete({ model: "sandbox/fault", messages, stream: true }),
    );
    let text = "";
    for await (const piece of answer.setEncoding("utf8")) {
      text += piece;
      if (text.includes('"content":"')) break;
    }
    expect(text).toContain('"content":"');
    expect(text).not.toContain("[DONE]");
  });

  test("a body larger than nginx's own default reaches the service", async () => {
    const messages = [{ role: "user", content: "word ".repeat(400_000) }];
    const answer = await nginx.fetch("/v1/chat/completions", complete({ model: "sandbox/echo", messages }));
    expect([answer.status, JSON.parse(answer.text).error.code]).toEqual([400, "context_length_exceeded"]);
  });
});

describe.skipIf(!hasNginx).each([
  ["passes the prefix on", (url: string) => url],
  ["removes the prefix, as its comment says", (url: string) => `${url}/`],
])("behind nginx under a path, where the guide's example %s", (_, upstreamOf) => {
  let service: ServiceProcess;
  let nginx: Nginx;
  let browser: Browser | undefined;

  beforeAll(async () => {
    service = await startProcess({ config: { server: { trustProxy: "127.0.0.1", basePath: "/tollgate" } } });
    nginx = await startNginx(join(EXAMPLES, "nginx-sub-path.conf"), upstreamOf(service.url));
    if (hasBrowser) browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await nginx?.end();
    await service?.end();
  });

  test("the rest of the host is not the service's", async () => {
    expect((await nginx.fetch("/v1/models")).text).not.toContain("error");
    const answer = await nginx.fetch("/tollgate/v1/models");
    expect([answer.status, JSON.parse(answer.text).error.code]).toEqual([401, "missing_token"]);
  });

  test.skipIf(!hasBrowser)("the console signs in, in a browser, with a Secure cookie for the path", async () => {
    if (browser === undefined) throw new Error("The browser did not start");
    const visitor = await visit(browser, { ...service, url: nginx.url }, { ignoreHTTPSErrors: true });
    const { page } = visitor;
    await page.goto("/tollgate");
    await page.getByLabel("Token").fill(firstAdminToken(service));
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/tollgate/");
    expect(await page.context().cookies()).toMatchObject([
      { name: "__Secure-tollgate_session_tollgate", path: "/tollgate", secure: true, httpOnly: true },
    ]);
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await page.getByRole("heading", { name: "Tokens", level: 1 }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Tokens", level: 1 }).waitFor();
    expect(visitor.pageErrors).toEqual([]);
    await visitor.close();
  });
});

/** An nginx of its own that runs one of the examples of the guide. */
interface Nginx {
  /** Its address with TLS. */
  url: string;
  /** Its address without TLS. */
  plainUrl: string;
  /** Sends a request with TLS, and checks the certificate. */
  fetch(path: string, options?: { method?: string; headers?: Record<string, string>; body?: string }): Promise<Answer>;
  /** Opens an answer without reading it to its end. */
  open(
    path: string,
    options?: { method?: string; headers?: Record<string, string>; body?: string },
  ): Promise<IncomingMessage>;
  end(): Promise<void>;
}

interface Answer {
  status: number | undefined;
  headers: IncomingMessage["headers"];
  text: string;
}

/**
 * Runs an example with a certificate of this run, on free ports, in front of a service. What is replaced in the example
 * are ports and file names; each must be there.
 */
async function startNginx(example: string, serviceUrl: string): Promise<Nginx> {
  const directory = await makeDirectory();
  const certificate = makeCertificate(directory);
  const [port, plainPort] = [await freePort(), await freePort()];
  const site = readFileSync(example, "utf8")
    .replaceAll("127.0.0.1:8484", new URL(serviceUrl).host)
    .replaceAll("listen 443 ssl;", `listen 127.0.0.1:${port} ssl;`)
    .replaceAll("listen 80;", `listen 127.0.0.1:${plainPort};`)
    .replaceAll(/(ssl_certificate +)\S+\.crt;/g, `$1${certificate.file};`)
    .replaceAll(/(ssl_certificate_key +)\S+\.key;/g, `$1${certificate.key};`);
  writeFileSync(join(directory, "site.conf"), site);
  writeFileSync(join(directory, "nginx.conf"), nginxConfiguration(directory));
  const words = ["-p", directory, "-c", join(directory, "nginx.conf"), "-e", join(directory, "error.log")];
  const child = spawn("nginx", words, { stdio: "ignore" });
  const url = `https://localhost:${port}`;
  const open: Nginx["open"] = (path, { method = "GET", headers = {}, body } = {}) =>
    new Promise((resolve, reject) => {
      const outgoing = request(`${url}${path}`, { method, headers, ca: certificate.text }, resolve);
      outgoing.on("error", reject);
      outgoing.end(body);
    });
  const fetchText: Nginx["fetch"] = async (path, options) => {
    const answer = await open(path, options);
    let text = "";
    for await (const piece of answer.setEncoding("utf8")) text += piece;
    return { status: answer.statusCode, headers: answer.headers, text };
  };
  const end = () => stop(child);
  try {
    await vi.waitFor(() => fetchText("/"), { timeout: START_TIMEOUT_MS, interval: 50 });
  } catch (error) {
    await end();
    throw error;
  }
  return { url, plainUrl: `http://127.0.0.1:${plainPort}`, open, fetch: fetchText, end };
}

function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once("exit", () => resolve());
    child.kill("SIGTERM");
  });
}

function makeCertificate(directory: string): { file: string; key: string; text: string } {
  const [file, key] = [join(directory, "localhost.crt"), join(directory, "localhost.key")];
  const names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
  const words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...words, "-addext", names, "-out", file, "-keyout", key], { stdio: "ignore" });
  return { file, key, text: readFileSync(file, "utf8") };
}
