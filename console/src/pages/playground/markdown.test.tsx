import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test } from "vitest";
import { Markdown } from "./markdown.tsx";

const render = (text: string) => renderToStaticMarkup(<Markdown text={text} />);

describe("untrusted text of a model", () => {
  test.each([
    ["a script", "<script>alert(1)</script>"],
    ["a handler", '<img src=x onerror="alert(1)">'],
    ["a frame", '<iframe src="https://example.com"></iframe>'],
    ["a form", '<form action="https://example.com"><input name="token"></form>'],
    ["a style", "<style>body{display:none}</style>"],
    ["a drawing", "<svg onload=alert(1)></svg>"],
  ])("The Markdown renders %s as text.", (_name, text) => {
    expect(render(text)).not.toMatch(/<(script|img|iframe|form|input|style|svg)/i);
  });

  test.each([
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
  ])("The Markdown %j contains no unsafe link.", (text) => {
    expect(render(text)).not.toMatch(/href="(?!https?:|mailto:|#)[^"]/i);
  });

  test("An image is not fetched.", () => {
    const html = render("![a cat](https://example.com/cat.png?q=secret)");
    expect(html).not.toContain("<img");
    expect(html).toContain("[image: a cat]");
    expect(render("![x](data:image/png;base64,AAAA)")).not.toContain("<img");
  });

  test("A link opens in a new tab without a referrer.", () => {
    expect(render("[x](https://example.com)")).toContain('rel="noopener noreferrer nofollow"');
  });
});

test("Markdown is rendered as HTML.", () => {
  const html = render("# One\n\n- a\n- **b**\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```js\n1 < 2\n```");
  for (const part of ["<h1>One</h1>", "<strong>b</strong>", "<table", "1 &lt; 2"]) expect(html).toContain(part);
});
