import { Pick } from "./pick.tsx";

interface OrganizationFilterProps {
  value: string;
  onValue: (organizationId: string) => void;
}

/** One organization, or all of them. */
export function OrganizationFilter({ value, onValue }: OrganizationFilterProps) {
  const attributes = { "aria-label": "Organization" };
  return <Pick what="organizations" attributes={attributes} all="All organizations" value={value} onValue={onValue} />;
}
