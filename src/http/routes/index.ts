import { createChatCompletion } from "./create-chat-completion.ts";
import type { Endpoint } from "./endpoint.ts";
import { listModels } from "./list-models.ts";
import { reportUsage } from "./report-usage.ts";
import { retrieveModel } from "./retrieve-model.ts";

/** Every operation of the API: a file each, a line each. */
export const endpoints: readonly Endpoint[] = [createChatCompletion, listModels, retrieveModel, reportUsage];
