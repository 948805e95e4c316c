import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator as operatorOf } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, problemsOf, signIn, type Visit, visit, WINDOWS } from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, startService } from "../support/service.ts";
import { startUpstream, type Upstream, type UpstreamRequest } from "../support/upstream.ts";

/** A red pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const TOOLS = [{ name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } }];
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

/** Answers with an image beside the text. */
function draw({ response }: UpstreamRequest): void {
  const image = { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } };
  const usage = { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 };
  const events = [
    { choices: [{ index: 0, delta: { role: "assistant", content: "Here it is" } }] },
    { choices: [{ index: 0, delta: { images: [image] } }] },
    { choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage },
  ];
  response.writeHead(200, { "content-type": "text/event-stream" });
  const head = { id: "c", object: "chat.completion.chunk", created: 1, model: "draw" };
  for (const event of events) response.write(`data: ${JSON.stringify({ ...head, ...event })}\n\n`);
  response.end("data: [DONE]\n\n");
}

describe.skipIf(!hasBrowser)("the playground", () => {
  let browser: Browser;
  let service: RunningService;
  let upstream: Upstream;
  let organization: Organization;
  let operator: Visit;
  let page: Page;

  beforeAll(async () => {
    upstream = await startUpstream();
    upstream.behave("draw", draw);
    const capabilities = ["chat", "streaming", "vision"];
    const models = [
      { id: "artist", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "draw" }], capabilities },
    ];
    const config = { providers: [upstream.provider, { id: "sandbox", kind: "sandbox" }], models };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    organization = await makeOrganization(service, "100");
    await operatorOf(service).call("PATCH", `/organizations/${organization.id}`, { keeps_conversations: true });
    operator = await visit(browser, service);
    page = operator.page;
    await signIn(page, await adminTokenOf(service));
    await page.getByRole("link", { name: "Playground" }).first().click();
    await pick(page, "Charged to", organization.id);
    await choose("Model", "sandbox/echo");
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await upstream?.close();
  });

  const choose = (label: string, model: string) => page.getByLabel(label, { exact: true }).selectOption(model);
  const log = (name = "Conversation") => page.getByRole("log", { name, exact: true });
  const send = async (text: string) => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.getByRole("button", { name: "Send", exact: true }).click();
  };
  const clear = () => page.getByRole("button", { name: "Clear" }).click();

  test("The operator compares three models, each with its tokens, cost and speed, and the conversation survives navigation.", async () => {
    const compare = page.getByRole("button", { name: "Compare with another model" });
    await compare.click();
    await compare.click();
    await compare.waitFor({ state: "detached" });
    await choose("Model 2", "sandbox/story");
    await choose("Model 3", "sandbox/fault");
    await page.getByLabel("Max output tokens").fill("20");
    // The model of faults does what its message says.
    await send("20 tokens");
    const names = ["sandbox/echo", "sandbox/story", "sandbox/fault"].map((model) => `Conversation with ${model}`);
    for (const name of names)
      await log(name)
        .getByText(/tokens out · .* credits · first token after/)
        .waitFor();
    expect(await problemsOf(operator, "three models")).toEqual([]);
    await page.setViewportSize(WINDOWS.wide);
    await page.getByRole("link", { name: "Models" }).first().click();
    await page.getByRole("heading", { name: "Models", level: 1 }).waitFor();
    await page.getByRole("link", { name: "Playground" }).first().click();
    for (const name of names) await log(name).getByText("20 tokens", { exact: true }).first().waitFor();
    await page.getByRole("button", { name: "Remove model 3" }).click();
    await page.getByRole("button", { name: "Remove model 2" }).click();
    await log().getByText("20 tokens", { exact: true }).first().waitFor();
    await page.getByLabel("Max output tokens").fill("");
    await clear();
  });

  test("A further model shows which answers are of the first one.", async () => {
    await send("Good morning");
    await log()
      .getByText(/first token after/)
      .waitFor();
    expect(await log().getByText("Answer of").count()).toBe(0);
    await page.getByRole("button", { name: "Compare with another model" }).click();
    await choose("Model 2", "sandbox/story");
    await log("Conversation with sandbox/story").getByText("Answer of sandbox/echo").waitFor();
    expect(await page.getByText("Answer of").count()).toBe(1);
    await page.getByRole("button", { name: "Remove model 2" }).click();
    await clear();
  });

  test("A tool is called, and the model goes on with the result that was typed.", async () => {
    await page.getByText("Tools and structured output").click();
    const tools = page.getByLabel("Tools", { exact: true });
    await tools.fill("weather");
    await page.getByText("Enter a JSON list of functions").waitFor();
    await tools.fill(JSON.stringify(TOOLS));
    await send("get_weather");
    await log().getByLabel("Result of get_weather").fill("sunny");
    await page.getByRole("button", { name: "Send results" }).click();
    await eventually(() => log().locator(".answer").count()).toBe(2);
    await log()
      .locator(".answer")
      .nth(1)
      .getByText(/first token after/)
      .waitFor();
    await tools.fill("");
    await clear();
  });

  test("An answer is JSON of the schema.", async () => {
    await page.getByLabel("JSON schema").fill(JSON.stringify(SCHEMA));
    await send("Vienna");
    await log()
      .getByText(/first token after/)
      .waitFor();
    const text = await log().locator(".answer .markdown").textContent();
    expect(JSON.parse(text ?? "")).toEqual({ city: expect.any(String) });
    await page.getByLabel("JSON schema").fill("");
    await clear();
  });

  test("An image is sent with a message, and the image of the answer is shown; it is retried.", async () => {
    await choose("Model", "artist");
    const buffer = Buffer.from(PNG, "base64");
    await page.getByLabel("Files", { exact: true }).setInputFiles({ name: "red.png", mimeType: "image/png", buffer });
    await page.getByRole("list", { name: "Attached files" }).getByText("red.png").waitFor();
    await send("Draw this");
    const picture = log().getByRole("img", { name: "Image 1 of the answer" });
    await picture.waitFor();
    await eventually(() => page.evaluate("document.querySelector('.answer .picture').naturalWidth")).toBe(1);
    await log().getByRole("img", { name: "red.png" }).waitFor();
    const [sent] = (upstream.requests.at(-1)?.body.messages ?? []) as { content: { type: string }[] }[];
    expect(sent?.content.map(({ type }) => type)).toEqual(["text", "image_url"]);
    await log().getByRole("button", { name: "Retry" }).click();
    await eventually(() => upstream.requests.length).toBe(2);
    await picture.waitFor();
    expect(await log().locator(".answer").count()).toBe(1);
    expect(operator.pageErrors).toEqual([]);
    await clear();
  });

  test("An answer that breaks and one that is stopped say what they cost.", async () => {
    await choose("Model", "sandbox/fault");
    await send("reset after 3 tokens");
    const costs = log().getByText(/\d credits charged/);
    await costs.waitFor();
    await send("silence after 5 tokens 60s");
    await eventually(() => log().locator(".answer").nth(1).textContent()).not.toBe("");
    await page.getByRole("button", { name: "Stop" }).click();
    await eventually(() => costs.count()).toBe(2);
    await send("status 500");
    await log().getByText("Nothing was charged").waitFor();
    const { body } = await operatorOf(service).call<{ data: { charged: number; ending: string }[] }>(
      "GET",
      `/requests?organization_id=${organization.id}&model=sandbox/fault&limit=3`,
    );
    const shown = (await costs.allTextContents()).map((text) => Number(/([\d.]+) credits charged/.exec(text)?.[1]));
    const [, stopped, broken] = body.data.map(({ charged }) => charged);
    expect(shown).toEqual([broken, stopped]);
    expect(broken).toBeGreaterThan(0);
    await clear();
  });

  test("A stored request continues in the playground, and its code is shown for each wire.", async () => {
    const { body } = await operatorOf(service).call<{ data: { id: string }[] }>(
      "GET",
      `/requests?organization_id=${organization.id}&model=sandbox/story&limit=1`,
    );
    await page.goto(`/requests/${body.data[0]?.id}`);
    await page.getByRole("button", { name: "Show prompt and answer" }).click();
    await page.getByRole("button", { name: "Continue in playground" }).click();
    await page.getByRole("heading", { name: "Playground" }).waitFor();
    await log().locator(".question").getByText("20 tokens", { exact: true }).waitFor();
    await eventually(() => page.getByLabel("Model", { exact: true }).inputValue()).toBe("sandbox/story");
    await page.getByRole("button", { name: "View code" }).click();
    const dialog = page.getByRole("dialog");
    const code = await dialog.locator(".code").innerText();
    expect(code.match(/"role": "\w+"/g)).toEqual(['"role": "user"']);
    for (const [wire, path] of [
      ["Responses", "/v1/responses"],
      ["Messages (Anthropic)", "/v1/messages"],
      ["Gemini", "/v1beta/models/sandbox/story:generateContent"],
      ["Chat completions", "/v1/chat/completions"],
    ] as const) {
      await dialog.getByLabel("API").selectOption({ label: wire });
      await dialog.locator(".code", { hasText: path }).waitFor();
    }
    expect(await problemsOf(operator, "code")).toEqual([]);
    await page.keyboard.press("Escape");
  });
});
