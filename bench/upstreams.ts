import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  EMBEDDING_ANSWER,
  EMBEDDING_BASE64_ANSWER,
  EVENTS_DEFAULT,
  streamedEvents,
  UNSTREAMED_ANSWER,
} from "./payload.ts";
import { freePort, type Processes, type Program } from "./processes.ts";

const here = dirname(fileURLToPath(import.meta.url));

/** Events of a streamed answer, and the milliseconds between two of them; 0: they are sent at once. */
export interface Pace {
  events: number;
  apartMs: number;
}

/**
 * Starts the upstream: nginx if it is installed and events are sent at once, otherwise a bare Node server. Returns its
 * address and its name.
 */
export async function startUpstream(
  processes: Processes,
  folder: string,
  { events, apartMs }: Pace = { events: EVENTS_DEFAULT, apartMs: 0 },
): Promise<{ url: string; name: string }> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const version = nginxVersion();
  if (version === undefined || apartMs > 0) {
    const words = [join(here, "upstream.ts"), ...[port, events, apartMs].map(String)];
    await processes.start("upstream", [process.execPath, ...words], url);
    return { url, name: "a bare Node server" };
  }
  const answers = join(folder, "answers");
  mkdirSync(answers, { recursive: true });
  writeFileSync(join(answers, "unstreamed"), UNSTREAMED_ANSWER);
  writeFileSync(join(answers, "embedding"), EMBEDDING_ANSWER);
  writeFileSync(join(answers, "base64"), EMBEDDING_BASE64_ANSWER);
  writeFileSync(join(answers, "streamed"), streamedEvents(events).join(""));
  await startNginx(processes, { name: "upstream", folder, url }, upstreamOf(port, answers));
  return { url, name: version };
}

/** Returns the name and version of nginx; undefined where it is not installed. */
export function nginxVersion(): string | undefined {
  const { status, stdout, stderr } = spawnSync("nginx", ["-v"], { encoding: "utf8" });
  return status === 0 ? (stderr + stdout).trim().replace(/^nginx version: /, "") : undefined;
}

/** nginx serves files to GET only: the 405 of a POST is turned into the file, with 200. */
function upstreamOf(port: number, answers: string): string {
  return `
  open_file_cache max=10 inactive=1h;
  open_file_cache_valid 1h;
  server {
    listen 127.0.0.1:${port};
    root ${answers};
    location / { error_page 405 =200 /unstreamed; try_files /unstreamed =404; }
    location /streamed/ { error_page 405 =200 /streamed; try_files /streamed =404; }
    location = /v1/embeddings { error_page 405 =200 /embedding; try_files /embedding =404; }
    location = /base64/v1/embeddings { error_page 405 =200 /base64; try_files /base64 =404; }
    location = /embedding { default_type application/json; }
    location = /base64 { default_type application/json; }
    location = /unstreamed { default_type application/json; }
    location = /streamed { default_type text/event-stream; }
  }`;
}

/** Returns the configuration of nginx as a gateway that passes events as they come and keeps its connections. */
export function gatewayOf(port: number, upstream: string): string {
  return `
  upstream models {
    server ${new URL(upstream).host};
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${port};
    client_body_buffer_size 1m;
    location = /ready { return 204; }
    location / {
      proxy_pass http://models;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }`;
}

/** Starts nginx with one worker process, which does without a log of the requests. */
export async function startNginx(
  processes: Processes,
  { name, folder, url }: { name: string; folder: string; url: string },
  servers: string,
): Promise<Program> {
  const own = join(folder, `nginx-${name}`);
  mkdirSync(own, { recursive: true });
  const file = join(own, "nginx.conf");
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  writeFileSync(
    file,
    // Its workers would be another user, to whom the folder is closed.
    `${process.getuid?.() === 0 ? "user root;" : ""}
worker_processes 1;
pid ${own}/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  ${temporary.map((kind) => `${kind}_temp_path ${own}/${kind};`).join("\n  ")}
  ${servers}
}
`,
  );
  return processes.start(name, ["nginx", "-p", folder, "-c", file, "-g", "daemon off;"], url);
}
