import { type ReactNode, useEffect } from "react";

interface PageProps {
  title: string;
  /** Line under the title. */
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/** Page with heading, actions and content. */
export function Page({ title, about, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} · Tollgate`;
  }, [title]);
  return (
    <div className="page">
      <header className="page-head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {about && <p className="soft">{about}</p>}
        </div>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

interface CardProps {
  title?: string;
  about?: ReactNode;
  actions?: ReactNode;
  /** Omits the padding, for tables. */
  flush?: boolean;
  /** True while it is printed alone: without the rest of its page. */
  isPrinted?: boolean;
  children: ReactNode;
}

export function Card({ title, about, actions, flush, isPrinted, children }: CardProps) {
  return (
    <section className="card" data-printed={isPrinted || undefined}>
      {title && (
        <header className="card-head">
          <div>
            <h2>{title}</h2>
            {about && <p className="small faint">{about}</p>}
          </div>
          {actions && <div className="actions">{actions}</div>}
        </header>
      )}
      <div className={flush ? "card-flush" : "card-body"}>{children}</div>
    </section>
  );
}

/** List of names with values. */
export function Facts({ facts }: { facts: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
