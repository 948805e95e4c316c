import type { Model } from "../../api/types.ts";

export const COMPARED_MODELS_MAX = 4;

interface ModelFilter {
  search: string;
  category: string;
  capability: string;
}

/** The models of which every word of the search stands in the name, the id or the description. */
export function filterModels(models: readonly Model[], { search, category, capability }: ModelFilter): Model[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return models.filter((model) => {
    const text = `${model.id} ${model.name} ${model.description} ${model.owned_by}`.toLowerCase();
    const isOfCategory = category === "" || model.category === category;
    const isAble = capability === "" || model.capabilities.some((one) => one === capability);
    return isOfCategory && isAble && words.every((word) => text.includes(word));
  });
}

/** The ids that are compared, as they stand in the address. */
export function parseCompared(text: string): string[] {
  return text.split(",").filter(Boolean).slice(0, COMPARED_MODELS_MAX);
}

export function toggleCompared(compared: readonly string[], id: string): string {
  const others = compared.filter((one) => one !== id);
  return (others.length === compared.length ? [...compared, id] : others).slice(0, COMPARED_MODELS_MAX).join(",");
}

/** Where a model's page is. An id has slashes of its own. */
export function modelPath(id: string): string {
  return `/models/${id.split("/").map(encodeURIComponent).join("/")}`;
}

/** Whether a path, as the browser or as the router writes it, is a model's. */
export function isModelPath(path: string, id: string): boolean {
  return path === modelPath(id) || path === `/models/${id}`;
}
