import { useQuery } from "@tanstack/react-query";
import { organizationChoices } from "../api/queries.ts";
import { Choice } from "./choice.tsx";

interface OrganizationFilterProps {
  value: string;
  onValue: (organizationId: string) => void;
}

/** One organization, or all of them. */
export function OrganizationFilter({ value, onValue }: OrganizationFilterProps) {
  const { data } = useQuery(organizationChoices);
  const options = (data?.data ?? []).map(({ id, name }) => [id, name] as const);
  return <Choice label="Organization" all="All organizations" value={value} options={options} onValue={onValue} />;
}
