import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { LETS_GO } from "./script.ts";

const PROGRAM = fileURLToPath(new URL("upstream-process.ts", import.meta.url));

export interface UpstreamProcess {
  baseUrl: string;
  /** Releases the waiting streams of a trial. */
  letGo(trial: string): Promise<void>;
  end(): Promise<void>;
}

/** Starts the upstream process, which logs to a directory and exits with this process at the latest. */
export async function startUpstreamProcess(directory: string): Promise<UpstreamProcess> {
  const child = spawn(process.execPath, [PROGRAM, directory], { stdio: ["pipe", "pipe", "inherit"] });
  const [port] = await once(child.stdout, "data");
  const url = `http://127.0.0.1:${String(port).trim()}`;
  return {
    baseUrl: `${url}/v1`,
    async letGo(trial) {
      const answer = await fetch(`${url}${LETS_GO}${trial}`);
      if (!answer.ok) throw new Error(`the upstream lets ${trial} not go: ${answer.status}`);
    },
    async end() {
      const exited = once(child, "exit");
      child.stdin.end();
      await exited;
    },
  };
}
