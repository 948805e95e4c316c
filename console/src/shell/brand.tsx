import { Link } from "wouter";

/** Logo, a half-open barrier, with the product name. */
export function Brand() {
  return (
    <Link className="brand" href="/">
      <svg viewBox="0 0 24 24" width="20" height="20" fill="none" stroke="currentColor" aria-hidden="true">
        <g strokeWidth="2.4" strokeLinecap="round">
          <path d="M5 20V8.5" />
          <path d="M5 11.5 20.5 7" />
          <path d="M11 20v-3.5M17 20v-3.5" strokeOpacity="0.45" />
        </g>
        <circle cx="5" cy="6" r="2.2" fill="currentColor" stroke="none" />
      </svg>
      Tollgate
    </Link>
  );
}
