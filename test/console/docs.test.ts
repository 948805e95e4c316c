import { execFile, spawnSync } from "node:child_process";
import { rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Browser, Page, Response } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { groupedOperations, type OpenApiDocument, operationsOf } from "../../console/src/pages/docs/document.ts";
import { TASKS } from "../../console/src/pages/docs/tasks.ts";
import { EXAMPLES, type Examples, type Reader } from "../../console/src/snippets/examples.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, problemsOf, signIn, type Visit, visit, WINDOWS } from "../support/console.ts";
import { ROOT } from "../support/documents.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  startService,
} from "../support/service.ts";

const run = promisify(execFile);
const PAGE_BYTES_MAX = 500_000;

let service: RunningService;
let organization: Organization;
/** Folder in which the examples run, which write and read a file. */
let folder: string;
beforeAll(async () => {
  service = await startService();
  organization = await makeOrganization(service, "10");
  folder = await makeDirectory();
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
});
afterAll(async () => {
  await service?.end();
  await rm(folder, { recursive: true, force: true });
});

const readerOf = (token?: string): Reader => ({
  ...{ root: service.url, token },
  model: "sandbox/echo",
  otherModels: {
    ...{ embeddings: "sandbox/embed", images: "sandbox/image" },
    ...{ speech: "sandbox/speech", transcription: "sandbox/transcribe" },
  },
});
const environment = () => ({ PATH: process.env.PATH, TOLLGATE_TOKEN: organization.token });
const NOBODY: Reader = {
  ...{ root: "", model: "" },
  otherModels: { embeddings: "", images: "", speech: "", transcription: "" },
};
const withCode = (language: keyof Examples) =>
  TASKS.filter(({ id }) => language in (EXAMPLES[id](NOBODY) as Examples)).map(({ id }) => id);
const examplesOf = (id: (typeof TASKS)[number]["id"], token?: string): Examples => EXAMPLES[id](readerOf(token));

describe("the examples of the reference", () => {
  const ANSWERS: Record<string, RegExp> = {
    chat: /"object":"chat.completion".*Hello, Tollgate!/,
    stream: /data: \[DONE\]/,
    tools: /get_weather/,
    json: /"object":"chat.completion"/,
    responses: /"object":"response".*Hello, Tollgate!/,
    messages: /"type":"message".*Hello, Tollgate!/,
    gemini: /"candidates".*Hello, Tollgate!/,
    embeddings: /"embedding"/,
    images: /"b64_json"/,
    speech: /^$/,
    transcription: /"text":"A WAV file of .* seconds."/,
    models: /"object":"list".*"creditsTotal"|"object":"list".*credits/s,
    retries: /"object":"chat.completion"/,
  };

  const PRINTED: Record<string, RegExp> = {
    images: /^iVBOR/,
    speech: /^$/,
    transcription: /^A WAV file of .* seconds\.\n$/,
  };

  test.each(withCode("curl"))("The curl command of %s is answered, with the token in it and without.", async (id) => {
    for (const token of [undefined, organization.token]) {
      const { curl = "" } = examplesOf(id, token);
      expect(curl.includes(organization.token)).toBe(token !== undefined);
      const env = token === undefined ? environment() : { PATH: process.env.PATH };
      const { stdout } = await run("sh", ["-c", curl], { env, cwd: folder });
      expect(stdout).toMatch(ANSWERS[id] ?? /^no answer is known$/);
    }
  });

  test.each(withCode("typescript").filter((id) => id !== "gemini"))(
    "The TypeScript program of %s runs.",
    async (id) => {
      const words = ["--input-type=module-typescript", "--eval", examplesOf(id).typescript ?? ""];
      const { stdout } = await run(process.execPath, words, { cwd: folder, env: environment() });
      expect(stdout).toMatch(PRINTED[id] ?? /Hello, Tollgate!|get_weather|sandbox\/echo|Vienna|\{|^\d+\n$/);
    },
  );

  const hasPython = spawnSync("python3", ["--version"]).status === 0;
  test.skipIf(!hasPython).each(withCode("python"))("The Python program of %s is Python.", async (id) => {
    for (const token of [undefined, organization.token]) {
      const check = "import ast, sys; ast.parse(sys.argv[1])";
      await run("python3", ["-c", check, examplesOf(id, token).python ?? ""]);
    }
  });
});

test("Every operation of the OpenAPI document is in a group, and every task names operations that exist.", async () => {
  const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as OpenApiDocument;
  const operations = operationsOf(document);
  const groups = groupedOperations(operations);
  expect(groups.map(([title]) => title)).not.toContain("Others");
  expect(groups.flatMap(([, group]) => group)).toHaveLength(operations.length);
  const known = new Set(operations.map(({ operationId }) => operationId));
  const named = TASKS.flatMap((task) => task.operations);
  expect(named.filter((name) => !known.has(name))).toEqual([]);
});

describe.skipIf(!hasBrowser)("the reference at /docs", () => {
  let browser: Browser;
  let guest: Visit;
  let page: Page;

  beforeAll(async () => {
    browser = await launchBrowser();
    guest = await visit(browser, service);
    page = guest.page;
  });
  afterAll(() => browser?.close());

  test("A guest reads it: at most 500 KB, from this service only, with a way back.", async () => {
    let bytes = 0;
    const sizes: Promise<void>[] = [];
    const count = (response: Response) => {
      sizes.push(
        response
          .request()
          .sizes()
          .then(({ responseBodySize }) => {
            bytes += responseBodySize;
          }),
      );
    };
    page.on("response", count);
    await page.goto("/docs");
    await page.getByRole("heading", { name: "API reference", level: 1 }).waitFor();
    await page.getByRole("heading", { name: "All operations" }).waitFor();
    expect((await page.locator(".operations").allInnerTexts()).join("\n")).not.toContain("`");
    await page.getByText(`curl '${service.url}/v1/chat/completions'`).waitFor();
    page.off("response", count);
    await Promise.all(sizes);
    expect(bytes).toBeGreaterThan(100_000);
    expect(bytes).toBeLessThan(PAGE_BYTES_MAX);
    expect(await problemsOf(guest, "reference for guests")).toEqual([]);
    await page.getByRole("link", { name: "Sign in", exact: true }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
  });

  test("The reader's token and model are in every example, in each language.", async () => {
    await page.goto("/docs");
    await page.getByLabel("Your token").fill(organization.token);
    const withoutModel: string[] = [];
    for (const { id, title } of TASKS) {
      await page.getByRole("navigation", { name: "Tasks" }).getByRole("link", { name: title, exact: true }).click();
      await page.getByRole("heading", { name: title, level: 2 }).waitFor();
      if ((await page.getByLabel("Model", { exact: true }).count()) === 0) withoutModel.push(id);
      for (const language of await page.getByRole("radio").all()) {
        await language.check();
        const code = await page.locator("pre.code").innerText();
        expect(code, title).toContain(service.url);
        if (!code.startsWith("model = ")) expect(code, title).toContain(organization.token);
      }
    }
    // Their examples contain a model that does not chat, or none.
    expect(withoutModel).toEqual(["embeddings", "images", "speech", "transcription", "models"]);
    expect(await page.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
  });

  test("An operation shows its example, fields, nested fields, answers and errors.", async () => {
    await page.goto("/docs");
    await page.getByRole("link", { name: "Create a chat completion" }).first().click();
    await page.getByRole("heading", { name: "Create a chat completion", level: 1 }).waitFor();
    const body = page.locator(".card", { has: page.getByRole("heading", { name: "Body" }) });
    const messages = body.locator(".schema > li", { has: page.locator("code", { hasText: /^messages$/ }) }).first();
    await messages.getByText("required").first().waitFor();
    await messages.getByText("Allowed: 1 to 10,000 entries").waitFor();
    await messages.getByText("Fields of messages").click();
    await messages.getByText('"system" or "developer" or "user"').waitFor();
    await page.getByRole("heading", { name: "Answer 200" }).waitFor();
    const errors = page.locator(".card", { has: page.getByRole("heading", { name: "Errors" }) });
    const credits = errors.getByRole("listitem").filter({ has: page.getByText("402", { exact: true }) });
    await credits.getByText("insufficient_credits, budget_exhausted").waitFor();
    await page.getByRole("link", { name: "All operations" }).click();
    await page.getByRole("link", { name: "Create an access token" }).click();
    await page.getByText(`curl '${service.url}/admin/v1/tokens'`).waitFor();
    expect(guest.pageErrors).toEqual([]);
  });

  test("The example of an operation has a model that it takes, a form, or no body.", async () => {
    const example = async (operation: string) => {
      await page.goto(`/docs?operation=${operation}`);
      return page.locator("pre.code").innerText();
    };
    expect(await example("createTextCompletion")).toContain('"model": "sandbox/echo"');
    expect(await example("sumRequests")).toContain("/requests/sums?by=");
    const curl = (await example("revokeToken")).replaceAll("$TOLLGATE_TOKEN", await adminTokenOf(service));
    const { stdout } = await run("sh", ["-c", curl.replace("{id}", "tok_none")]);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "not_found" } });
    const transcription = await example("createTranscription");
    expect(transcription).toContain("-F 'model=sandbox/transcribe' \\\n  -F 'file=@speech.wav'");
    const body = page.locator(".card", { has: page.getByRole("heading", { name: "Body" }) });
    await body.getByText("Language of the audio, such as en.").waitFor();
  });

  test("Those who are signed in read it inside the console, with the models that they can call.", async () => {
    await page.setViewportSize(WINDOWS.wide);
    await signIn(page, await adminTokenOf(service));
    await page.getByRole("link", { name: "API reference" }).click();
    await page.getByLabel("Model").selectOption("sandbox/story");
    await eventually(() => page.locator("pre.code").innerText()).toContain('"model": "sandbox/story"');
    // The others of the sandbox do not chat.
    const offered = await page.getByLabel("Model").getByRole("option").allInnerTexts();
    expect(offered.toSorted()).toEqual(["sandbox/echo", "sandbox/fault", "sandbox/story"]);
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  });
});
