/** A server that npm installs from a fake registry, for the tests of `postern mcp add`. */
import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import type { FakePackage } from "../../../support/fake_registries.ts";
import type { Machine } from "../../support/run_in.ts";

const has = (name: string) =>
  (process.env["PATH"] ?? "").split(delimiter).some((folder) => existsSync(join(folder, name)));
export const withoutNpm = has("npm") ? false : "there is no npm";

export const PROGRAM = "#!/usr/bin/env node\nconsole.log('server');\n";
export const SERVER: FakePackage = {
  name: "@acme/server-notes",
  version: "1.2.3",
  manifest: { bin: { notes: "dist/index.js" }, dependencies: { "left-part": "^1.0.0" } },
  files: { "dist/index.js": PROGRAM },
};
/** A package whose script would leave a file behind. */
export const WITH_SCRIPT: FakePackage = {
  name: "left-part",
  version: "1.1.0",
  manifest: { scripts: { install: "node -e \"require('fs').writeFileSync('ran', '')\"" } },
};

/** Returns the folders of what was installed on a machine. */
export function packagesOf({ dataDir }: Machine): readonly string[] {
  const folder = join(dataDir, "mcp/packages");
  return existsSync(folder) ? readdirSync(folder) : [];
}
