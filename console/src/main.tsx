import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/data.css";
import "./styles/charts.css";
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { ApiFailure } from "./api/client.ts";
import { App } from "./app.tsx";
import { addressUnderBasePath, BASE_PATH } from "./base-path.ts";
import { SecretHost } from "./pages/tokens/secret.tsx";

const RETRIES = 2;

/** Refetches the session after any 401, so that the sign-in page appears when it has expired. */
function onError(error: unknown): void {
  if (error instanceof ApiFailure && error.status === 401) void client.invalidateQueries({ queryKey: ["session"] });
}

const client: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({
    onError: (error, _input, _context, { meta }) => {
      if (meta?.signsIn !== true) onError(error);
    },
  }),
  defaultOptions: {
    // A refused request is not retried; a failed one may succeed a moment later.
    queries: { retry: (failures, error) => failures < RETRIES && !(error instanceof ApiFailure && error.status < 500) },
  },
});

const root = document.getElementById("root");
const elsewhere = addressUnderBasePath(location);
if (elsewhere !== null) {
  // The session cookie and the routes are valid under the base path only.
  location.replace(elsewhere);
} else if (root !== null) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <Router base={BASE_PATH}>
        <App />
        <SecretHost />
      </Router>
    </QueryClientProvider>,
  );
}
