import type { Locator, Page } from "playwright-core";
import { eventually, found, pick, WINDOWS } from "../support/console.ts";

export interface Opening {
  path: string;
  /** Source file of the dialog. */
  file: string;
  /** Opens the dialog. Forms are submitted with invalid input, so that their errors show. */
  open: (page: Page) => Promise<void>;
}

const press = (place: Page | Locator, name: string) => place.getByRole("button", { name, exact: true }).first().click();

/** Returns a function that clicks a button and then acts in the dialog that it opens. */
const pressing = (name: string, then?: (dialog: Locator) => Promise<void>) => async (page: Page) => {
  await press(page, name);
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await then?.(dialog);
};

/** Closes the open dialog, and confirms if it asks. */
export async function closeDialog(page: Page): Promise<void> {
  const dialog = page.getByRole("dialog");
  await page.keyboard.press("Escape");
  const answers = dialog.getByRole("button", { name: /^(Discard|Done)$/ });
  await eventually(async () => (await answers.count()) > 0 || (await dialog.count()) === 0).toBe(true);
  if ((await answers.count()) > 0) await answers.click();
  await dialog.waitFor({ state: "detached" });
}

/** Submits invalid input and waits for the error. */
const refused = async (dialog: Locator, name: string) => {
  await press(dialog, name);
  await dialog.locator("[aria-invalid]").first().waitFor();
};

/** The part of an organization's page that a form belongs to. */
const TAB_OF: Record<string, string> = {
  "pages/organizations/budget-forms.tsx": "budgets",
  "pages/organizations/budgets.tsx": "budgets",
  "pages/organizations/conversations-section.tsx": "settings",
  "pages/organizations/terms.tsx": "settings",
  "pages/tokens/bounds.tsx": "tokens",
};

const OF_ORGANIZATIONS: Opening[] = [
  {
    path: "/organizations",
    file: "pages/organizations/organization-forms.tsx",
    open: pressing("Create organization", (dialog) => refused(dialog, "Create organization")),
  },
  ...[
    {
      file: "pages/organizations/organization-forms.tsx",
      open: pressing("Edit", async (dialog) => {
        await dialog.getByLabel("Name").fill("");
        await dialog.getByLabel("Requests per minute").fill("many");
        await refused(dialog, "Save");
      }),
    },
    { file: "pages/organizations/organization-forms.tsx", open: pressing("Pause") },
    { file: "pages/organizations/close-organization.tsx", open: pressing("Close") },
    {
      file: "pages/organizations/terms.tsx",
      open: pressing("Edit terms", async (dialog) => {
        await dialog.getByLabel("Contacts").fill("nobody");
        await refused(dialog, "Save");
      }),
    },
    {
      file: "pages/organizations/booking-forms.tsx",
      open: pressing("Grant credits", async (dialog) => {
        await dialog.getByLabel("Expires").selectOption("date");
        await refused(dialog, "Grant credits");
      }),
    },
    {
      file: "pages/organizations/booking-forms.tsx",
      open: pressing("Revoke", async (dialog) => {
        await dialog.getByLabel("Credits").fill("some");
        await refused(dialog, "Revoke credits");
      }),
    },
    {
      file: "pages/organizations/booking-forms.tsx",
      open: pressing("Refund", async (dialog) => {
        await dialog.getByLabel("Credits", { exact: true }).fill("1000");
        await press(dialog, "Refund credits");
        await dialog.getByRole("alert").waitFor();
      }),
    },
    {
      file: "pages/organizations/top-up.tsx",
      open: pressing("Set up", (dialog) => refused(dialog, "Save")),
    },
    {
      file: "pages/organizations/payments.tsx",
      open: pressing("Buy credits", async (dialog) => {
        await dialog.getByLabel("Amount", { exact: true }).selectOption("other");
        await dialog.getByLabel("Other amount in EUR").fill("1");
        await refused(dialog, "Continue to payment");
      }),
    },
    {
      file: "pages/organizations/allowances.tsx",
      open: pressing("Add allowance", (dialog) => refused(dialog, "Add allowance")),
    },
    { file: "pages/organizations/allowances.tsx", open: pressing("End allowance") },
    {
      file: "pages/organizations/budget-forms.tsx",
      open: pressing("Create budget", async (dialog) => {
        await pick(dialog, "Tokens", "capped");
        await dialog.getByLabel("Metadata", { exact: true }).fill("team");
        await dialog.getByLabel("The amount and the limits are for").selectOption("metadata");
        await refused(dialog, "Create budget");
      }),
    },
    { file: "pages/organizations/budget-forms.tsx", open: pressing("Change web team") },
    {
      file: "pages/organizations/budget-forms.tsx",
      open: pressing("Raise web team", (dialog) => refused(dialog, "Raise budget")),
    },
    { file: "pages/organizations/budget-forms.tsx", open: pressing("Delete web team") },
    {
      file: "pages/organizations/budgets.tsx",
      open: pressing("Show values of every user", (dialog) => dialog.getByRole("row", { name: "(none)" }).waitFor()),
    },
    { file: "pages/tokens/bounds.tsx", open: pressing("Edit bounds") },
    { file: "pages/organizations/conversations-section.tsx", open: pressing("Disable storage") },
    { file: "pages/organizations/conversations-section.tsx", open: pressing("Delete stored data") },
  ].map(({ file, open }) => ({ path: `/organizations/:id?tab=${TAB_OF[file] ?? "credits"}`, file, open })),
  {
    path: "/organizations",
    file: "pages/organizations/new-customer.tsx",
    open: pressing("New customer", async (dialog) => {
      await dialog.getByLabel("Token name").fill("");
      await refused(dialog, "Create customer");
    }),
  },
];

export const OPENINGS: Opening[] = [
  ...OF_ORGANIZATIONS,
  {
    path: "/tokens",
    file: "pages/tokens/create.tsx",
    open: pressing("Create token", async (dialog) => {
      await dialog.getByRole("radio", { name: "Selected models" }).check();
      await dialog.getByLabel("Spending cap").fill("much");
      await dialog.getByLabel("Expires").selectOption("date");
      await refused(dialog, "Create token");
    }),
  },
  {
    path: "/tokens",
    file: "pages/tokens/secret.tsx",
    open: pressing("Create token", async (dialog) => {
      await pick(dialog, "Organization", "Donaudampf");
      await dialog.getByLabel("Name").fill("shown once");
      await press(dialog, "Create token");
      await dialog.getByText("You won't see it again").waitFor();
    }),
  },
  { path: "/tokens", file: "pages/tokens/token-actions.tsx", open: pressing("Rotate capped") },
  { path: "/tokens", file: "pages/tokens/token-actions.tsx", open: pressing("Revoke capped") },
  {
    path: "/tokens",
    file: "pages/pick.tsx",
    open: async (page) => {
      await page.getByRole("combobox", { name: "Organization" }).fill("Donau");
      await found(page).getByRole("option").waitFor();
      await page.keyboard.press("ArrowDown");
      await page.getByRole("status").getByText("1 match").waitFor();
    },
  },
  {
    path: "/requests?organization_id=:id&model=sandbox%2Fecho",
    file: "pages/requests/conversation.tsx",
    open: async (page) => {
      await page.getByRole("table").getByRole("link", { name: "sandbox/echo" }).first().click();
      await press(page, "Show prompt and answer");
      await page.getByText(/^Stored until/).waitFor();
    },
  },
  {
    path: "/requests?organization_id=:id&model=sandbox%2Ffault",
    file: "pages/requests/panel.tsx",
    open: async (page) => {
      await page.getByRole("table").getByRole("link", { name: "sandbox/fault" }).first().click();
      await page.getByRole("dialog").getByText("Timing").waitFor();
    },
  },
  {
    path: "/vouchers",
    file: "pages/vouchers/vouchers.tsx",
    open: pressing("Create vouchers", async (dialog) => {
      await dialog.getByLabel("Vouchers expire").selectOption("date");
      await dialog.getByLabel("Days to spend the credits").fill("0");
      await refused(dialog, "Create vouchers");
    }),
  },
  {
    path: "/vouchers",
    file: "pages/tokens/secret.tsx",
    open: pressing("Create vouchers", async (dialog) => {
      await dialog.getByLabel("Name").fill("shown once");
      await dialog.getByLabel("Credits each").fill("5");
      await press(dialog, "Create vouchers");
      await dialog.getByText("You won't see them again").waitFor();
    }),
  },
  { path: "/vouchers", file: "pages/vouchers/vouchers.tsx", open: pressing("Show vouchers of Workshop") },
  { path: "/vouchers", file: "pages/vouchers/vouchers.tsx", open: pressing("Revoke Workshop") },
  { path: "/requests", file: "pages/requests/columns.tsx", open: pressing("Columns") },
  {
    path: "/requests",
    file: "shell/command-palette.tsx",
    open: async (page) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Page, action, name or ID" }).fill("a");
      await page.getByRole("dialog").locator("[role=listbox][aria-busy=false]").waitFor();
    },
  },
  { path: "/requests", file: "shell/shortcuts.tsx", open: pressing("Keyboard shortcuts") },
  {
    path: "/warnings",
    file: "pages/warnings/receiver-forms.tsx",
    open: pressing("Add receiver", async (dialog) => {
      await dialog.getByRole("radio", { name: "Selected events" }).check();
      await refused(dialog, "Add receiver");
    }),
  },
  {
    path: "/warnings",
    file: "pages/tokens/secret.tsx",
    open: pressing("Add receiver", async (dialog) => {
      await dialog.getByLabel("Name").fill("shown once");
      await dialog.getByLabel("Address").fill("https://127.0.0.1:1/");
      await press(dialog, "Add receiver");
      await dialog.getByText("You won't see it again").waitFor();
    }),
  },
  ...["Send test event", "Edit", "Replace secret", "Disable", "Delete"].map((name) => ({
    path: "/warnings/:receiver",
    file: "pages/warnings/receiver-forms.tsx",
    open: pressing(name),
  })),
  { path: "/warnings/:receiver", file: "pages/warnings/deliveries.tsx", open: pressing("Send now") },
  { path: "/playground", file: "pages/playground/code-dialog.tsx", open: pressing("View code") },
  {
    path: "/tokens",
    file: "shell/shell.tsx",
    open: async (page) => {
      await page.setViewportSize(WINDOWS.narrow);
      await press(page, "Menu");
      await page.getByRole("dialog").waitFor();
    },
  },
];
