import packageJson from "../../package.json" with { type: "json" };
import { OperatorError } from "../errors.ts";

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
    const versions: Record<string, string> = packageJson.optionalDependencies;
    const hint = `npm install ${name}@${versions[name]}`;
    throw new OperatorError(`${needs} the package ${name}, which is not installed: ${hint}`, { cause: error });
  }
}
