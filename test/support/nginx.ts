import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { join } from "node:path";
import { vi } from "vitest";
import { freePort, makeDirectory } from "./service.ts";

const START_TIMEOUT_MS = 60_000;

/** An nginx of its own that runs one of the examples of the guide. */
export interface Nginx {
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
export async function startNginx(example: string, serviceUrl: string): Promise<Nginx> {
  const directory = await makeDirectory();
  const certificate = makeCertificate(directory);
  const [port, plainPort] = [await freePort(), await freePort()];
  const site = readFileSync(example, "utf8")
    .replaceAll("http://127.0.0.1:8484", serviceUrl)
    .replaceAll("listen 443 ssl;", `listen 127.0.0.1:${port} ssl;`)
    .replaceAll("listen 80;", `listen 127.0.0.1:${plainPort};`)
    .replaceAll(/(ssl_certificate +)\S+\.crt;/g, `$1${certificate.file};`)
    .replaceAll(/(ssl_certificate_key +)\S+\.key;/g, `$1${certificate.key};`);
  writeFileSync(join(directory, "site.conf"), site);
  writeFileSync(join(directory, "nginx.conf"), mainConfiguration(directory));
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

/** The distribution's nginx.conf around a site, with all files in the directory. */
function mainConfiguration(directory: string): string {
  const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => {
    const place = join(directory, name);
    mkdirSync(place);
    return `${name}_temp_path ${place};`;
  });
  const user = process.getuid?.() === 0 ? "user root;" : "";
  return `daemon off; worker_processes 1; pid ${join(directory, "nginx.pid")}; ${user}
events {}
http {
  access_log off;
  ${places.join(" ")}
  include ${join(directory, "site.conf")};
}
`;
}
