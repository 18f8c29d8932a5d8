import { readOwnFile } from "../../base/own_file.ts";
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

/** Reads the README, then the pages of `docs/` that its list for models names. */
async function readPages(): Promise<readonly OwnPage[]> {
  const folder = await packageFolder();
  if (folder === undefined) return [];
  const read = (path: string) => readOwnFile(new URL(path, folder)).catch(() => "");
  const names = [...(await read("docs/llms.txt")).matchAll(/\]\((\w+)\.md\)/g)].map(([, name]) => `docs/${name}.md`);
  return await Promise.all(["README.md", ...names.sort()].map(async (path) => ({
    source: `Postern's ${path === "README.md" ? "README" : path}`,
    text: (await read(path)).slice(0, MAX_CHARACTERS),
  })));
}

async function packageFolder(): Promise<URL | undefined> {
  // A server has the sources as they are
  if (!import.meta.url.startsWith("file:")) return new URL("../../../", import.meta.url);
  let folder = new URL("./", import.meta.url);
  for (let up = 0; up < MAX_FOLDERS; up++) {
    const manifest = await readOwnFile(new URL("package.json", folder)).catch(() => "");
    if (/"name":\s*"postern"/.test(manifest)) return folder;
    folder = new URL("../", folder);
  }
  return undefined;
}
