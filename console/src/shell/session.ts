import { createContext, useContext } from "react";
import type { Permission, Session } from "../api/types.ts";

export const SessionContext = createContext<Session | null>(null);

/** Returns the session of a person, or of a guest of the playground (`role` is null). */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("useSession was called outside of SessionContext");
  return session;
}

/** Returns what the role of the session permits, and whether it sees every organization. */
export function useAccess(): { may: (permission: Permission) => boolean; isServiceWide: boolean } {
  const { role, organization, permissions } = useSession();
  const may = (permission: Permission) => permissions.includes(permission);
  return { may, isServiceWide: role !== null && organization === null };
}
