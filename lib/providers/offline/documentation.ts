import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Passage, prosePassages } from "./passages.ts";

/** Folders above this file that are looked through for the package */
const MAX_FOLDERS = 6;
const MAX_CHARACTERS = 1_048_576;

/**
 * Reads Postern's own documentation: the README beside the package, and the help of its commands. What cannot be read is left out.
 * @param help text of each command's `--help`, by its name. Default: none
 */
export async function readDocumentation(
  help: () => Promise<ReadonlyMap<string, string>> = () => Promise.resolve(new Map()),
): Promise<readonly Passage[]> {
  const [readme, commands] = await Promise.all([readReadme(), help().catch(() => new Map<string, string>())]);
  const ofHelp = [...commands].map(([name, text]): Passage => ({
    source: `postern ${name} --help`,
    heading: `postern ${name}`,
    headings: `Commands > postern ${name}`,
    line: 1,
    text: `\`\`\`\n${text.trimEnd()}\n\`\`\``,
    isCode: false,
    isRow: false,
    isOwn: true,
  }));
  return [...prosePassages(readme, { source: "Postern's README", isOwn: true }), ...ofHelp];
}

async function readReadme(): Promise<string> {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (let up = 0; up < MAX_FOLDERS; up++) {
    const [manifest, readme] = await Promise.all(
      ["package.json", "README.md"].map((name) => readFile(join(folder, name), "utf8").catch(() => "")),
    );
    if (/"name":\s*"postern"/.test(manifest ?? "")) return (readme ?? "").slice(0, MAX_CHARACTERS);
    folder = dirname(folder);
  }
  return "";
}
