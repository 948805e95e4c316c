import { Component, type ReactNode } from "react";
import { Page } from "../ui/page.tsx";
import { Failure } from "../ui/states.tsx";

interface BoundaryProps {
  children: ReactNode;
}

/** Where a page cannot be shown, the rest of the console stays. Its parts are loaded when they are needed, which can fail. */
export class Boundary extends Component<BoundaryProps, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <Page title="Page failed to load">
        <Failure error={error} onRetry={() => location.reload()} />
      </Page>
    );
  }
}
