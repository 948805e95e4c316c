/** Path under which the service is published, without a slash at its end; empty: the root of its host. */
export const BASE_PATH = globalThis.document?.documentElement.dataset.basePath ?? "";

/** Base URL of the API, as programs and the code samples of the console use it. */
export function apiBaseUrl(): string {
  return `${location.origin}${BASE_PATH}/v1`;
}

/** The same page under the base path, where the browser is outside of it; null where it is not. */
export function addressUnderBasePath({ pathname, search, hash }: Location): string | null {
  if (pathname === BASE_PATH || pathname.startsWith(`${BASE_PATH}/`)) return null;
  return `${BASE_PATH}${pathname}${search}${hash}`;
}
