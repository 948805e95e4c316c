import ReactMarkdown, { type Components } from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import "./markdown.css";

/**
 * Elements for Markdown from a model, which is untrusted. HTML is shown as text or dropped, only web and mail addresses
 * become links, and images are shown as links so that nothing is fetched.
 */
const COMPONENTS: Components = {
  a: ({ href, children }) =>
    href ? (
      <a href={href} target="_blank" rel="noopener noreferrer nofollow">
        {children}
      </a>
    ) : (
      <span>{children}</span>
    ),
  img: ({ src, alt }) => {
    const words = alt || "without a description";
    return typeof src === "string" && src !== "" ? (
      <a href={src} target="_blank" rel="noopener noreferrer nofollow">
        {`[image: ${words}]`}
      </a>
    ) : (
      <span>{`[image: ${words}]`}</span>
    );
  },
  pre: ({ children }) => (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard
    <pre className="code" tabIndex={0}>
      {children}
    </pre>
  ),
  table: ({ children }) => (
    <div className="table-scroll">
      <table className="table">{children}</table>
    </div>
  ),
};

export function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={[remarkGfm]} rehypePlugins={[rehypeSanitize]} components={COMPONENTS}>
        {text}
      </ReactMarkdown>
    </div>
  );
}
