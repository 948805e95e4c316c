import { MessagesSquare } from "lucide-react";
import { Link } from "wouter";
import type { Model } from "../../api/types.ts";
import { CopyIcon } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Facts } from "../../ui/page.tsx";
import { Note } from "../../ui/states.tsx";
import { factsOf } from "./facts.tsx";
import { groundsOf } from "./health.ts";
import { RouteBadge } from "./route-badge.tsx";

/** One model: what it is for, its facts, and the routes that are tried for it. */
export function ModelPanel({ model, onClose }: { model: Model; onClose: () => void }) {
  const { id, name, description, deprecated, shutdown_date, replacement, routes } = model;
  return (
    <Dialog title={name} side onClose={onClose}>
      <div className="dialog-body">
        <p className="soft">{description}</p>
        {deprecated && (
          <Note tone="warn">
            Deprecated.{shutdown_date !== null && ` Shuts down on ${shutdown_date}.`}
            {replacement !== null && ` Use ${replacement} instead.`}
          </Note>
        )}
        <div className="row">
          <Link className="button button-main" href={`/playground?model=${encodeURIComponent(id)}`}>
            <MessagesSquare size={15} aria-hidden="true" />
            <span>Try in playground</span>
          </Link>
          <CopyIcon text={id} label="Copy ID" />
        </div>
        <Facts facts={factsOf(model)} />
        {routes !== null && (
          <section className="stack-small">
            <h3>Routes</h3>
            <ol className="steps">
              {routes.map((route) => (
                <li key={route.route}>
                  <span className="cell-two">
                    <span className="mono wrap-anywhere">{route.route}</span>
                    <span className="small faint">{groundsOf(route)}</span>
                  </span>
                  <RouteBadge route={route} />
                </li>
              ))}
            </ol>
          </section>
        )}
      </div>
    </Dialog>
  );
}
