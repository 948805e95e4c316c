import type { Model } from "../../api/types.ts";

export const COMPARED_MAX = 4;

interface Wanted {
  search: string;
  category: string;
  capability: string;
}

/** The models of which every word of the search stands in the name, the id or the description. */
export function matching(models: readonly Model[], { search, category, capability }: Wanted): Model[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return models.filter((model) => {
    const text = `${model.id} ${model.name} ${model.description} ${model.owned_by}`.toLowerCase();
    const isOfCategory = category === "" || model.category === category;
    const isAble = capability === "" || model.capabilities.some((one) => one === capability);
    return isOfCategory && isAble && words.every((word) => text.includes(word));
  });
}

/** The ids that are compared, as they stand in the address. */
export function comparedIn(text: string): string[] {
  return text.split(",").filter(Boolean).slice(0, COMPARED_MAX);
}

export function toggled(compared: readonly string[], id: string): string {
  const others = compared.filter((one) => one !== id);
  return (others.length === compared.length ? [...compared, id] : others).slice(0, COMPARED_MAX).join(",");
}

/** Where a model's page is. An id has slashes of its own. */
export function pathOf(id: string): string {
  return `/models/${id.split("/").map(encodeURIComponent).join("/")}`;
}

/** Whether a path, as the browser or as the router writes it, is a model's. */
export function isAt(path: string, id: string): boolean {
  return path === pathOf(id) || path === `/models/${id}`;
}
