import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("upstream-process.ts", import.meta.url));

export interface UpstreamProcess {
  baseUrl: string;
  end(): Promise<void>;
}

/** Starts the upstream's process, which logs to a directory; it ends with this one at the latest. */
export async function startUpstreamProcess(directory: string): Promise<UpstreamProcess> {
  const child = spawn(process.execPath, [PROGRAM, directory], { stdio: ["pipe", "pipe", "inherit"] });
  const [port] = await once(child.stdout, "data");
  return {
    baseUrl: `http://127.0.0.1:${String(port).trim()}/v1`,
    async end() {
      const exited = once(child, "exit");
      child.stdin.end();
      await exited;
    },
  };
}
