import { Badge } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { healthOf, type Route } from "./health.ts";

export function RouteBadge({ route }: { route: Route }) {
  const { tone, word } = healthOf(route, useNow());
  return (
    <span title={route.route}>
      <Badge tone={tone}>{word}</Badge>
    </span>
  );
}
