import type { UpstreamFailure } from "../errors.ts";

interface Consequence {
  /**
   * Where the request may go next, so long as nothing of an answer was given to the client: to another route; also to the
   * same one again where there is no other; only to a route with a larger context window; or nowhere, because every
   * upstream would say the same, or should.
   */
  next: "elsewhere" | "elsewhere or again" | "larger" | "nowhere";
  /** Whether it speaks against the upstream, rather than against the request. */
  isUpstreams: boolean;
}

/** What follows from each way in which an upstream can fail. */
export const CONSEQUENCES: Readonly<Record<UpstreamFailure, Consequence>> = {
  rejected: { next: "nowhere", isUpstreams: false },
  unsupported: { next: "elsewhere", isUpstreams: false },
  content_filter: { next: "nowhere", isUpstreams: false },
  context_length: { next: "larger", isUpstreams: false },
  credentials: { next: "elsewhere", isUpstreams: true },
  misconfigured: { next: "elsewhere", isUpstreams: true },
  overloaded: { next: "elsewhere", isUpstreams: true },
  // A connection kept alive may have been closed at the moment of its use: the next one finds out.
  unavailable: { next: "elsewhere or again", isUpstreams: true },
  timeout: { next: "elsewhere", isUpstreams: true },
  malformed: { next: "elsewhere", isUpstreams: true },
  failed: { next: "elsewhere", isUpstreams: true },
};
