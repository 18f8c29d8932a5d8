import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** The project's folder, without a trailing slash. */
export const PROJECT_ROOT = fileURLToPath(new URL("../..", import.meta.url)).replace(/[\\/]$/, "");

export interface SourceFile {
  /** Relative to the project, with forward slashes */
  readonly path: string;
  readonly text: string;
}

/** All TypeScript and JavaScript files below these folders. */
export function sourceFiles(folders: readonly string[]): SourceFile[] {
  return folders.flatMap((folder) =>
    readdirSync(join(PROJECT_ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.(ts|js)$/.test(entry.name))
      .map((entry) => join(entry.parentPath, entry.name))
      .map((file) => ({ path: relative(PROJECT_ROOT, file).split(sep).join("/"), text: readFileSync(file, "utf8") }))
  ).sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Module specifiers a file imports or re-exports, dynamic imports of plain strings included. */
export function importsOf(text: string): string[] {
  const found = text.matchAll(/(?:\bfrom\s*|\bimport\s*\(\s*|\bimport\s+)"([^"\n]+)"/g);
  return [...found].map((match) => match[1] ?? "");
}

/** The text with comments and the contents of plain strings blanked, line breaks kept. */
export function codeOnly(text: string): string {
  return text.replace(
    /\/\*[\s\S]*?\*\/|(?<![:\w"'`\\/])\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g,
    (match) => match.replace(/[^\n]/g, " "),
  );
}
