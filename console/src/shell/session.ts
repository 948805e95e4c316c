import { createContext, useContext } from "react";
import type { Session } from "../api/types.ts";

export const SessionContext = createContext<Session | null>(null);

/** Returns the session of an operator, a member, or a guest of the playground (`role` is null). */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("useSession was called outside of SessionContext");
  return session;
}
