import type { TextFile, Violation } from "./source.ts";

const UNFINISHED = new RegExp(
  `\\b(${["TO", "FIX", "HA", "X"].map((a, i) => a + ["DO", "ME", "CK", "XX"][i]).join("|")})\\b`,
);
/** Paths that mean something on one machine only. */
const MACHINE_PATH = new RegExp(
  `(?<![\\w.~\\-])(?:/(?:${["home", "root", "Users", "work", "tmp", "mnt"].join("|")})/)\\w|[A-Z]:\\\\\\w`,
);
const SILENCED = new RegExp(`@ts-${"(ignore|expect-error|nocheck)"}`);

/** Rules about the lines of any file, code or prose. */
export function checkText({ path, text }: TextFile): Violation[] {
  const violations: Violation[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    const report = (rule: string, message: string) => violations.push({ path, line: index + 1, rule, message });
    const unfinished = UNFINISHED.exec(line);
    if (unfinished !== null) report("unfinished", `${unfinished[1]} marks unfinished work`);
    const machine = MACHINE_PATH.exec(line);
    if (machine !== null) report("machine", `${machine[0]}… is a path of one machine`);
    if (SILENCED.test(line)) report("types", "the compiler is silenced");
  }
  return violations;
}
