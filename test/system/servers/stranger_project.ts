import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { readPages } from "../../docs/support/read_pages.ts";
import { buildPackage } from "../../support/build_package.ts";
import { ROOT } from "../../support/gateway_process.ts";
import { packPackage } from "../../support/packed_package.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

/** A program of docs/embedding.md that a test runs. */
export interface Recipe {
  /** Path of its file in a project */
  readonly path: string;
  readonly text: string;
  /** Output that stands below it, where `...` stands for anything */
  readonly output: string | undefined;
}

/** Returns the programs of the page that are marked as run by these tests. */
export function readRecipes(): readonly Recipe[] {
  const page = readPages().find(({ path }) => path === "docs/embedding.md");
  return (page?.blocks ?? []).flatMap(({ notRun, text, output }) => {
    const [, path] = /^test\/system\/servers runs it as (\S+)$/.exec(notRun ?? "") ?? [];
    return path === undefined ? [] : [{ path, text, output }];
  });
}

/** Writing asks a person, and is off by default */
const WRITES = 'basePath: "/agent", config: { security: { write_file: { enabled: true } } }';
/** Pages of the project's own, beside the programs of the page */
const OWN_PAGES: Readonly<Record<string, string>> = {
  "package.json": '{ "name": "shop", "private": true, "type": "module" }',
  // Next.js takes no JSX below a folder node_modules, where the project stands
  "app/layout.js": `import { createElement } from "react";
export default ({ children }) => createElement("html", {}, createElement("body", {}, children));`,
  "app/page.js": `export default () => "The server's own page\\n";`,
  "routes/index.js": `export default () => "The server's own page\\n";`,
};

/**
 * Makes a project of a stranger: the packed package in its `node_modules`, the programs of the page with the tool `write_file` turned on, and
 * pages of its own.
 * @param modules folder of `systemTools`: the project is made beside it, and finds the servers there
 * @returns the project's folder, which the caller removes
 */
export async function makeProject(modules: string): Promise<string> {
  const project = mkdtempSync(join(dirname(modules), "project-"));
  const installed = join(project, "node_modules/postern");
  mkdirSync(installed, { recursive: true });
  const built = await buildPackage();
  await withTemporaryFolder(async (folder) => {
    const tarball = await packPackage(built, folder);
    await promisify(execFile)("tar", ["-xzf", tarball, "-C", installed, "--strip-components=1"]);
  });
  const { dependencies } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  for (const name of Object.keys(dependencies)) {
    const path = join(project, "node_modules", name);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync(join(ROOT, "node_modules", name), path);
  }
  const files = [...Object.entries(OWN_PAGES), ...readRecipes().map(({ path, text }) => [path, text] as const)];
  for (const [path, text] of files) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text.replace('basePath: "/agent"', WRITES));
  }
  return project;
}
