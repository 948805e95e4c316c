import { expect, test } from "vitest";
import { lineOf, load } from "../../test/support/config.ts";

const stripe = (rest: object) => {
  const settings = { secretKey: "sk_test_1", webhookSecret: "whsec_1", currency: "eur", creditsPerUnit: 10, ...rest };
  return JSON.stringify({ payments: { stripe: settings } });
};
const PACKAGES = { packages: [{ amount: "10" }] };

test("amounts stay decimal texts, and the keys of Stripe come from variables", () => {
  const text = stripe({
    secretKey: `\${KEY}`,
    creditsPerUnit: 0.1,
    packages: [{ amount: 12.29, credits: 600.000001 }],
  });
  expect(load(text, { KEY: "sk_live_2" }).payments.stripe).toMatchObject({
    ...{ secretKey: "sk_live_2", creditsPerUnit: "0.1", automaticTax: false },
    packages: [{ amount: "12.29", credits: "600.000001" }],
  });
});

test.each<[string, object, RegExp]>([
  ["nothing to buy", {}, /packages is empty/],
  [
    "a currency with three decimals",
    { ...PACKAGES, currency: "kwd" },
    /currency is "kwd", but must be a currency code/,
  ],
  [
    "a decimal of a currency without",
    { currency: "jpy", packages: [{ amount: "10.5" }] },
    /packages\[0\]\.amount is 10\.5/,
  ],
  ["a third decimal", { customAmount: { minimum: "0.005", maximum: "1" } }, /customAmount\.minimum is 0\.005/],
  [
    "bounds that are the wrong way round",
    { customAmount: { minimum: "5", maximum: "1" } },
    /customAmount has a minimum above its maximum/,
  ],
  [
    "two packages of one amount",
    { packages: [{ amount: "10" }, { amount: "20" }, { amount: "10.00", credits: "200" }] },
    /packages\[2\]\.amount is the amount of an earlier package/,
  ],
  [
    "a package that buys 0 credits",
    { creditsPerUnit: "0.0000001", packages: [{ amount: "1", credits: "5" }, { amount: "9.99" }] },
    /packages\[1\]\.amount is 9\.99, which buys 0 credits/,
  ],
  [
    "a custom amount that buys 0 credits",
    { creditsPerUnit: "0.0000001", customAmount: { minimum: "1", maximum: "500" } },
    /customAmount\.minimum is 1, which buys 0 credits/,
  ],
  [
    "credits finer than the books",
    { packages: [{ amount: "1", credits: "0.0000001" }] },
    /credits must have at most 6/,
  ],
  ["a price of nothing", { packages: [{ amount: "0" }] }, /amount is "0", but must be a decimal number above 0/],
  ["an API over plain HTTP elsewhere", { ...PACKAGES, apiUrl: "http://stripe.example" }, /apiUrl is/],
])("%s is refused in one line that names the key", (_what, rest, message) => {
  const line = lineOf(() => load(stripe(rest)));
  expect(line).toMatch(message);
  expect(line).not.toContain("sk_test_1");
});
