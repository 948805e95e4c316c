import { hash } from "node:crypto";
import { ORGANIZATION_ROLES, type Role } from "../api/admin/roles.ts";
import { LABEL_CHARACTERS_MAX } from "../api/chat/request.ts";
import { isObject, type JsonObject } from "../api/json.ts";
import { type Pins, PLAYGROUND_ID } from "../api/principal.ts";
import { isSeen, printable } from "../api/wording.ts";
import type { Path } from "./file.ts";
import type { IssuerSettings } from "./identity-schema.ts";

export const NAME_CHARACTERS_MAX = 200;

/** Access of a person or a caller whom an issuer identifies. */
export interface ClaimedAccess {
  role: Role;
  /** The organization of a role within one; null for the other roles. */
  organizationId: string | null;
  pins: Pins;
  basis: string;
}

/** Returns the access of the first role that the claims of a verified token match, with its organization; undefined for none. */
export function accessOfClaims({ roles, pins }: IssuerSettings, claims: JsonObject): ClaimedAccess | undefined {
  for (const [index, { when, role, organization }] of roles.entries()) {
    if (!Object.entries(when).every(([name, value]) => isMatch(claims, name, value))) continue;
    const found = typeof organization === "object" ? claimAt(claims, organization.claim) : (organization ?? null);
    if (found !== null && (typeof found !== "string" || found === "" || found === PLAYGROUND_ID)) continue;
    if (found === null && organization !== undefined) continue;
    const pinned = Object.entries(pins).map(([key, claim]) => [key, pinnedValue(claimAt(claims, claim))]);
    const basis = basisOf({ roles, pins }, index + 1);
    return { role, organizationId: found, pins: Object.fromEntries(pinned), basis };
  }
  return undefined;
}

/** Tells whether the settings still give a person the access with which they signed in. */
export function givesAccess(issuers: readonly IssuerSettings[], person: { issuer: string; basis: string }): boolean {
  const settings = issuers.find(({ issuer, clientId }) => issuer === person.issuer && clientId !== undefined);
  return settings !== undefined && basisOf(settings, Number.parseInt(person.basis, 10)) === person.basis;
}

/** Identifies the settings on which an access depends: the first `count` roles, of which the last one matches, and the pins. */
function basisOf({ roles, pins }: Pick<IssuerSettings, "roles" | "pins">, count: number): string {
  return `${count} ${hash("sha256", JSON.stringify([roles.slice(0, count), pins]), "hex")}`;
}

/** Returns an address only if its issuer has verified it: elsewhere, anyone can state any address. */
function verifiedAddress({ email, email_verified }: JsonObject): string | undefined {
  return email_verified === true && typeof email === "string" && email.includes("@") ? email : undefined;
}

function isMatch(claims: JsonObject, name: string, value: string | boolean): boolean {
  const address = verifiedAddress(claims);
  if (name === "email") return address === value;
  // Case makes no difference in the names of hosts.
  if (name === "email_domain") return address?.toLowerCase().endsWith(`@${value}`.toLowerCase()) === true;
  return [claimAt(claims, name)].flat().includes(value);
}

/** Returns a claim by its name, which can contain dots itself, or by a path of names with a dot between them. */
function claimAt(claims: JsonObject, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  const dot = name.indexOf(".");
  const inner = dot > 0 && Object.hasOwn(claims, name.slice(0, dot)) ? claims[name.slice(0, dot)] : undefined;
  return isObject(inner) ? claimAt(inner, name.slice(dot + 1)) : undefined;
}

function pinnedValue(claim: unknown): string | null {
  const isScalar = typeof claim === "string" || typeof claim === "number" || typeof claim === "boolean";
  const text = isScalar ? String(claim) : "";
  return text === "" || text.length > LABEL_CHARACTERS_MAX ? null : text;
}

/** Returns how people know an account: a name that its holder may have chosen has the host of the issuer, and so is nobody else's. */
export function nameOfClaims(claims: JsonObject, issuer: string): string {
  const address = verifiedAddress(claims);
  const names = [address, claims.preferred_username, claims.name];
  const name = names.find((one) => typeof one === "string" && isSeen(one)) ?? claims.sub;
  const shown = printable(String(name), NAME_CHARACTERS_MAX);
  return name === address ? shown : `${shown.slice(0, 150)} (${new URL(issuer).host})`.slice(0, NAME_CHARACTERS_MAX);
}

/** Returns the first contradiction between settings of issuers, with its path and the words that follow it. */
export function identityContradiction(issuers: readonly IssuerSettings[]): { path: Path; text: string } | undefined {
  const seen = new Set<string>();
  for (const [index, { issuer, clientId, clientSecret, audience, roles }] of issuers.entries()) {
    const path = ["identity", "issuers", index];
    if (seen.has(issuer)) {
      return { path: [...path, "issuer"], text: `is ${JSON.stringify(issuer)} a second time. Issuers must be unique.` };
    }
    seen.add(issuer);
    if ((clientId === undefined) !== (clientSecret === undefined)) {
      const missing = clientId === undefined ? "clientId" : "clientSecret";
      return { path: [...path, missing], text: "is missing. clientId and clientSecret must be set together." };
    }
    if (clientId === undefined && audience === undefined) {
      return {
        path,
        text: "has no use. Set clientId and clientSecret for sign-in, audience for JWT access tokens, or both.",
      };
    }
    for (const [place, { role, organization }] of roles.entries()) {
      const needsOrganization = ORGANIZATION_ROLES.some((one) => one === role);
      if (needsOrganization === (organization !== undefined)) continue;
      const text = needsOrganization
        ? `is missing. The role ${role} is one of an organization.`
        : `must be removed. The role ${role} is not one of an organization.`;
      return { path: [...path, "roles", place, "organization"], text };
    }
  }
  return undefined;
}
