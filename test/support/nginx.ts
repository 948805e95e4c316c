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
