import type { Model } from "../../api/types.ts";

export const COMPARED_MODELS_MAX = 4;

interface ModelFilter {
  search: string;
  category: string;
  capability: string;
}

/** Returns the models that match the filters and contain every word of the search in ID, name, description or owner. */
export function filterModels(models: readonly Model[], { search, category, capability }: ModelFilter): Model[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return models.filter((model) => {
    const text = `${model.id} ${model.name} ${model.description} ${model.owned_by}`.toLowerCase();
    const isOfCategory = category === "" || model.category === category;
    const isAble = capability === "" || model.capabilities.some((one) => one === capability);
    return isOfCategory && isAble && words.every((word) => text.includes(word));
  });
}

/** Reads the IDs of the compared models from the query string. */
export function parseCompared(text: string): string[] {
  return text.split(",").filter(Boolean).slice(0, COMPARED_MODELS_MAX);
}

export function toggleCompared(compared: readonly string[], id: string): string {
  const others = compared.filter((one) => one !== id);
  return (others.length === compared.length ? [...compared, id] : others).slice(0, COMPARED_MODELS_MAX).join(",");
}

/** Returns the path of a model's page. The slashes of its ID stay. */
export function modelPath(id: string): string {
  return `/models/${id.split("/").map(encodeURIComponent).join("/")}`;
}

/** Returns true if a path, encoded or decoded, belongs to a model. */
export function isModelPath(path: string, id: string): boolean {
  return path === modelPath(id) || path === `/models/${id}`;
}
