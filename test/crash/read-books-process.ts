/** Prints the books of a SQLite file as JSON, for a process that cannot see the file. Arguments: path, organizations. */
import { readFile, toText } from "./books.ts";

const [path = "", ...organizationIds] = process.argv.slice(2);
process.stdout.write(toText(readFile(path, organizationIds)));
