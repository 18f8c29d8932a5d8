import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Passage, prosePassages } from "./passages.ts";
import { stemmed } from "./rank_passages.ts";

/** Folders above this file that are looked through for the package */
const MAX_FOLDERS = 6;
const MAX_CHARACTERS = 1_048_576;

/**
 * Reads Postern's own documentation: the README and the pages of `docs/` beside the package, and the help of its commands. What cannot
 * be read is left out.
 * @param help text of each command's `--help`, by its name. Default: none
 */
export async function readDocumentation(
  help: () => Promise<ReadonlyMap<string, string>> = () => Promise.resolve(new Map()),
): Promise<readonly Passage[]> {
  const [pages, commands] = await Promise.all([readPages(), help().catch(() => new Map<string, string>())]);
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
  const ofPages = pages.flatMap(({ source, text }) => prosePassages(text, { source, isOwn: true }));
  return [...ofPages, ...ofHelp].map((passage) => ({ ...passage, stems: stemmed(passage) }));
}

interface OwnPage {
  /** As `Postern's README` or `Postern's docs/http.md` */
  readonly source: string;
  readonly text: string;
}

/** Reads the README, then the pages of `docs/` by their names; not those of folders below, which are for who works on Postern. */
async function readPages(): Promise<readonly OwnPage[]> {
  const folder = await packageFolder();
  if (folder === undefined) return [];
  const names = (await readdir(join(folder, "docs")).catch(() => [])).filter((name) => name.endsWith(".md")).sort();
  const files = [["README", "README.md"], ...names.map((name) => [`docs/${name}`, join("docs", name)])];
  return await Promise.all(files.map(async ([name, path = ""]) => ({
    source: `Postern's ${name}`,
    text: (await readFile(join(folder, path), "utf8").catch(() => "")).slice(0, MAX_CHARACTERS),
  })));
}

async function packageFolder(): Promise<string | undefined> {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (let up = 0; up < MAX_FOLDERS; up++) {
    const manifest = await readFile(join(folder, "package.json"), "utf8").catch(() => "");
    if (/"name":\s*"postern"/.test(manifest)) return folder;
    folder = dirname(folder);
  }
  return undefined;
}
