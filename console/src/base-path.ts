/** Path under which the service is published, without a trailing slash; empty for the root of the host. */
export const BASE_PATH = globalThis.document?.documentElement.dataset.basePath ?? "";

/** Base URL of the API for clients, including the code samples of the console. */
export function apiBaseUrl(): string {
  return `${location.origin}${BASE_PATH}/v1`;
}

/** Returns the address of the same page under the base path; null if the location is already under it. */
export function addressUnderBasePath({ pathname, search, hash }: Location): string | null {
  if (pathname === BASE_PATH || pathname.startsWith(`${BASE_PATH}/`)) return null;
  return `${BASE_PATH}${pathname}${search}${hash}`;
}
