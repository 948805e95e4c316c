import { join } from "node:path";

/** Returns the main configuration of an nginx whose files are all in a directory, around the `site.conf` there. */
export function nginxConfiguration(directory: string, { log = "access_log off;" } = {}): string {
  const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${join(directory, name)};`,
  );
  const user = process.getuid?.() === 0 ? "user root;" : "";
  return `daemon off; worker_processes 1; worker_rlimit_nofile 8192; pid ${join(directory, "nginx.pid")}; ${user}
events { worker_connections 4096; }
http {
  ${log}
  ${places.join(" ")}
  include ${join(directory, "site.conf")};
}
`;
}

/** Returns the example for three nodes with these in their places. TLS is left out: its tests are about the nodes. */
export function nginxSite(example: string, listens: string, hosts: readonly string[]): string {
  let site = example.replace("listen 443 ssl;", `listen ${listens};`).replace(/ssl_certificate\w* +\S+;/g, "");
  for (const [index, host] of hosts.entries()) {
    const name = `10.0.0.${11 + index}:8484`;
    site = site.replaceAll(name, host).replaceAll(name.replaceAll(".", "\\."), host.replaceAll(".", "\\."));
  }
  return site;
}
