import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type Config, loadConfig } from "../config.ts";
import { OperatorError } from "../errors.ts";
import { loadStoreSettings } from "./sources.ts";

const directory = mkdtempSync(join(tmpdir(), "tollgate-variables-"));
afterAll(() => rmSync(directory, { recursive: true }));

let made = 0;
function fileWith(content: string | Buffer): string {
  made += 1;
  const path = join(directory, `secret-${made}`);
  writeFileSync(path, content);
  return path;
}

const PROVIDERS = "providers: [{ id: a, kind: openai-compatible, baseUrl: 'http://a/v1', apiKey: KEY }]";
const load = (environment: Record<string, string>, text = "") =>
  loadConfig({ environment, readFile: () => text, providerKeyVariables: ["OPENAI_API_KEY"] });

function mistakeOf(environment: Record<string, string>, text?: string): string {
  try {
    load(environment, text);
  } catch (error) {
    expect(error).toBeInstanceOf(OperatorError);
    expect((error as Error).message).not.toContain("\n");
    return (error as Error).message;
  }
  throw new Error("Nothing was refused.");
}

describe("a value in a file", () => {
  test.each<[string, string, (config: Config) => unknown]>([
    ["OPENAI_API_KEY", "sk-canary", ({ providerKeys }) => providerKeys.OPENAI_API_KEY],
    ["DATABASE_URL", "postgres://u:canary@h/d", ({ database }) => database],
    ["LOG_LEVEL", "warn", ({ log }) => log.level],
    ["HOST", "0.0.0.0", ({ server }) => server.host],
    ["TOLLGATE_DATA_DIR", "/data", ({ dataDir }) => dataDir],
    ["HTTPS_PROXY", "http://user:canary@proxy:1", ({ proxyVariables }) => proxyVariables.HTTPS_PROXY],
  ])("is that of %s, by NAME_FILE and by a credential of systemd", (name, value, of) => {
    expect(of(load({ [`${name}_FILE`]: fileWith(`${value}\r\n\n`) }))).toBe(value);
    const credentials = mkdtempSync(join(directory, "credentials-"));
    writeFileSync(join(credentials, name), `${value}\n`);
    expect(of(load({ CREDENTIALS_DIRECTORY: credentials }))).toBe(value);
    // Both of the others come first.
    expect(of(load({ CREDENTIALS_DIRECTORY: credentials, [name]: value }))).toBe(value);
    expect(of(load({ CREDENTIALS_DIRECTORY: credentials, [`${name}_FILE`]: fileWith(value) }))).toBe(value);
  });

  test("is that of PORT, as a number", () => {
    expect(load({ PORT_FILE: fileWith("99\n") }).server.port).toBe(99);
  });

  test("replaces a reference in a text", () => {
    const path = fileWith("sk-canary\n");
    const keyOf = (text: string, environment = {}) =>
      load(
        environment,
        PROVIDERS.replace("KEY", () => text),
      ).providers[0]?.apiKey;
    expect(keyOf(`'\${MY_KEY}-x'`, { MY_KEY_FILE: path })).toBe("sk-canary-x");
    expect(keyOf(`"\${file:${path}}"`)).toBe("sk-canary");
    expect(keyOf(`'$\${file:/x}'`)).toBe(`\${file:/x}`);
  });

  test("is read by commands that open only the store", async () => {
    const environment = { DATABASE_URL_FILE: fileWith("postgres://u:canary@h/d\n") };
    const settings = await loadStoreSettings({ environment, readFile: () => "" });
    expect(settings.database).toBe("postgres://u:canary@h/d");
    const text = `database: "\${file:${environment.DATABASE_URL_FILE}}"`;
    expect((await loadStoreSettings({ environment: {}, readFile: () => text })).database).toBe(
      "postgres://u:canary@h/d",
    );
  });

  test("is not read by a command that calls no provider", () => {
    const environment = { OPENAI_API_KEY_FILE: join(directory, "absent") };
    const sources = { environment, readFile: () => "", providerKeyVariables: ["OPENAI_API_KEY"] };
    expect(Object.keys(loadConfig({ ...sources, secrets: "unread" }).providerKeys)).toEqual(["OPENAI_API_KEY"]);
    expect(() => loadConfig(sources)).toThrow("there is no such file");
  });
});

describe("a mistake names the file and not its content", () => {
  const absent = join(directory, "absent");
  const loop = join(directory, "loop");
  symlinkSync(loop, loop);
  mkdirSync(join(directory, "folder"));
  test.each<[string, string, string]>([
    ["no file", absent, "cannot be read: there is no such file"],
    ["a directory", join(directory, "folder"), "cannot be read: it is a directory"],
    ["a link in a circle", loop, "cannot be read: its symbolic links lead in a circle"],
    ["an empty file", fileWith("\n\n"), "is empty"],
    ["a file of 64 KiB and one byte", fileWith("x".repeat(65_537)), "is larger than 65536 bytes"],
    ["bytes", fileWith(Buffer.from([0xff, 0xfe])), "is not text in UTF-8"],
    ["a device", "/dev/zero", "is not a regular file"],
  ])("%s", (_name, path, reason) => {
    expect(mistakeOf({ OPENAI_API_KEY_FILE: path })).toBe(`OPENAI_API_KEY_FILE: the file ${path} ${reason}`);
    const text = PROVIDERS.replace("KEY", `"\${file:${path}}"`);
    expect(mistakeOf({}, text)).toBe(`tollgate.yaml:1: providers[0].apiKey: the file ${path} ${reason}`);
  });

  test("a variable that is set twice", () => {
    const environment = { DATABASE_URL: "postgres://h/d", DATABASE_URL_FILE: fileWith("postgres://h/d") };
    expect(mistakeOf(environment)).toBe("DATABASE_URL and DATABASE_URL_FILE are both set; remove one of them.");
  });

  test.each(["canary-secret", `canary-${"x".repeat(200)}`, 'canary "quoted"'])(
    "a content that does not fit its setting: %s",
    (content) => {
      const path = fileWith(content);
      for (const name of ["PORT", "LOG_LEVEL", "DATABASE_URL", "HTTPS_PROXY"]) {
        const line = mistakeOf({ [`${name}_FILE`]: path });
        expect(line).toContain("but must be");
        expect(line).not.toContain("canary");
      }
      expect(mistakeOf({}, `server: { port: "\${file:${path}}" }`)).not.toContain("canary");
    },
  );
});

test("all variables that are not set, and all contradictions of settings are reported at once", () => {
  const unset = `providers: [{ id: a, kind: openai-compatible, apiKey: "\${NO_KEY}" }]
payments: { stripe: { secretKey: "\${NO_SECRET}", webhookSecret: "\${NO-NAME}" } }`;
  expect(() => load({}, unset)).toThrow(
    /^tollgate\.yaml:1: providers\[0\]\.apiKey needs .* NO_KEY, .*\ntollgate\.yaml:2: payments\.stripe\.secretKey needs .* NO_SECRET, .*\n.*:2: payments\.stripe\.webhookSecret contains \$\{NO-NAME\}\. [^\n]*$/,
  );
  const contradictions = `statements: { mail: true }
ledger: { holdSeconds: 30, renewSeconds: 30 }`;
  expect(() => load({}, contradictions)).toThrow(
    /^tollgate\.yaml:1: statements\.mail is true, [^\n]*\ntollgate\.yaml:2: ledger\.renewSeconds is 30, [^\n]*$/,
  );
});
