/**
 * `npm run dev`: the service from source, which restarts when its sources change, and the console on Vite's development
 * server, which reloads its pages when theirs change and forwards API requests to the service. Arguments: `--config`
 * and `--data-dir`, as for `tollgate serve`. The service's address comes from the configuration, or from HOST and PORT.
 */
import { spawn, spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createServer } from "vite";
import { proxyTo } from "../console/vite.config.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const main = join(root, "src", "main.ts");

/** Reads the address that the service will listen on; a wildcard host is reached over loopback. */
function readServiceUrl(flags: string[]): string {
  const check = spawnSync(process.execPath, [main, "config", "check", "--json", ...flags], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (check.status !== 0) process.exit(check.status ?? 1);
  const { host, port }: { host: string; port: number } = JSON.parse(check.stdout);
  const reachable = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host;
  return `http://${reachable.includes(":") ? `[${reachable}]` : reachable}:${port}`;
}

const flags = process.argv.slice(2);
const target = readServiceUrl(flags);
// Watches the folder, because Node does not follow imports of worker threads, or migrations.
const watch = [`--watch-path=${join(root, "src")}`, "--watch-preserve-output"];
const service = spawn(process.execPath, [...watch, main, "serve", ...flags], { stdio: "inherit" });

const consoleServer = await createServer({
  configFile: join(root, "console", "vite.config.ts"),
  mode: "development",
  clearScreen: false,
  server: { host: "127.0.0.1", proxy: proxyTo(target), fs: { allow: [root] } },
});
await consoleServer.listen();
consoleServer.printUrls();

async function stop(): Promise<void> {
  service.kill("SIGTERM");
  await consoleServer.close();
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, stop);
service.once("close", (code) => {
  process.exitCode = code ?? 0;
  void consoleServer.close();
});
