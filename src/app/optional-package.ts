import { OperatorError } from "../errors.ts";
import { notInstalledText } from "../internals/optional-packages.ts";

/** Loads an optional package. `needs` is who needs it: `redis needs`. Rejects with OperatorError if it is not installed. */
export async function loadOptional<Module>(
  needs: string,
  name: string,
  importIt: () => Promise<Module>,
): Promise<Module> {
  try {
    return await importIt();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new OperatorError(`${needs} ${notInstalledText([name])}`, { cause: error });
  }
}
