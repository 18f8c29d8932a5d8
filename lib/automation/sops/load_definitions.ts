import { basename, join } from "node:path";
import { canonicalDigest } from "../../base/json.ts";
import { type ConfigProblem, ToolError } from "../../base/errors.ts";
import { listSome } from "../../base/text.ts";
import { toKeyText, withoutMark } from "../../config/toml.ts";
import { TextFormatError } from "../../config/front_matter.ts";
import { nearest } from "../../config/nearest.ts";
import type { Files, FileScope } from "../../system/files/files.ts";
import { decodeText } from "../../tools/files/read_text.ts";
import { checkDefinition } from "./check_definition.ts";
import { type Fault, SOP_LIMITS, type SopDefinition, toPlainJson } from "./definition.ts";
import { readSopDocument, type SopDocument } from "./read_sop_document.ts";

/** A folder of definitions. */
export interface SopFolder {
  /** Absolute */
  readonly path: string;
  /** Name of the folder for people */
  readonly shownAs: string;
  /** True for a folder in the workspace: nobody has accepted its content */
  readonly inWorkspace: boolean;
}

/** A definition as it was found. */
export interface FoundSop {
  readonly definition: SopDefinition;
  /** Name of the file for people */
  readonly file: string;
  /** SHA-256 of the definition, hexadecimal */
  readonly digest: string;
  readonly inWorkspace: boolean;
}

/** A file that is no definition. */
export interface InvalidSop {
  readonly file: string;
  readonly problems: readonly ConfigProblem[];
}

/** The definitions that were found, and the files that cannot be used. */
export interface LoadedSops {
  readonly sops: readonly FoundSop[];
  readonly invalid: readonly InvalidSop[];
}

/** Folders that definitions are loaded from, and paths that they may not lie in. */
export interface DefinitionSources {
  readonly files: Files;
  /** Folders in order: a definition in an earlier folder wins over a definition with the same id in a later one */
  readonly folders: readonly SopFolder[];
  readonly workspaceRoot: string;
  /** Paths in the workspace that the user forbids, beside the built-in ones */
  readonly forbiddenPaths: readonly string[];
}

/** Folder of definitions in a workspace, relative to it. */
export const WORKSPACE_SOPS = join(".postern", "sops");

/**
 * Returns the folders of definitions, the first to count first: those of `[sops] dirs`, `{data_dir}/sops`, and `.postern/sops` of the
 * workspace.
 */
export function sopFolders(
  { dirs, dataDir, workspaceRoot }: {
    readonly dirs: readonly string[];
    readonly dataDir: string;
    readonly workspaceRoot: string;
  },
): readonly SopFolder[] {
  const own = [...dirs, join(dataDir, "sops")].map((path) => ({ path, shownAs: path, inWorkspace: false }));
  return [...own, { path: join(workspaceRoot, WORKSPACE_SOPS), shownAs: WORKSPACE_SOPS, inWorkspace: true }];
}

/** Names that are read of one folder */
const MAX_ENTRIES = 2_000;
/** Problems that are reported of a file */
const MAX_PROBLEMS = 10;

/**
 * Reads every definition again. A file that is no definition is in `invalid`, with file, line, key path and the way out.
 *
 * Files are opened as tools open theirs: a link out of the folder, a FIFO, a second hard link, or too much of it is refused. Of two
 * definitions of one id the first counts, so that none found in a workspace takes the place of the operator's.
 */
export async function loadDefinitions(options: DefinitionSources): Promise<LoadedSops> {
  const sops = new Map<string, FoundSop>();
  const invalid: InvalidSop[] = [];
  for (const folder of options.folders) {
    const listed = await namesIn(folder, options);
    if ("reason" in listed) {
      invalid.push({ file: folder.shownAs, problems: [problem(folder.shownAs, listed.reason)] });
      continue;
    }
    for (const name of listed.names) {
      const file = join(folder.shownAs, name);
      const found = await loadOne(name, file, { ...options, folder });
      const first = "definition" in found ? sops.get(found.definition.id) : undefined;
      if ("problems" in found) invalid.push(found);
      else if (first === undefined) sops.set(found.definition.id, found);
      else {
        const reason = `its id "${found.definition.id}" is taken by ${first.file}; give it another`;
        invalid.push({ file, problems: [{ ...problem(file, reason), key: "id" }] });
      }
    }
  }
  return { sops: [...sops.values()], invalid };
}

/** Lists the definitions of a folder by the handle that was checked: not even names of another place are told of. */
async function namesIn(
  folder: SopFolder,
  sources: DefinitionSources,
): Promise<{ readonly names: readonly string[] } | { readonly reason: string }> {
  try {
    const { scope, path } = placeOf(folder, sources);
    const all = await sources.files.names(path, scope, MAX_ENTRIES);
    if (all === undefined) return { reason: `the folder has over ${MAX_ENTRIES} entries` };
    const names = all.filter((name) => /\.(toml|md)$/.test(name) && !/^readme\.md$/i.test(name)).sort();
    return names.length > SOP_LIMITS.files
      ? { reason: `the folder has over ${SOP_LIMITS.files} definitions` }
      : { names };
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    if (error.code === "not_found") return { names: [] };
    return { reason: error.code === "path_outside_root" ? "the folder leads out of the workspace" : error.message };
  }
}

/** Returns where a folder lies for the door to files, and what may be opened there. */
function placeOf(
  { path, shownAs, inWorkspace }: SopFolder,
  { workspaceRoot, forbiddenPaths }: DefinitionSources,
): { readonly scope: FileScope; readonly path: string } {
  // The folder's own root counts for the operator's folders, which may lie where tools may not go
  return inWorkspace
    ? { scope: { workspaceRoot, allowedRoot: ".", forbiddenPaths, allowSensitive: false }, path: shownAs }
    : { scope: { workspaceRoot: path, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false }, path: "." };
}

async function loadOne(
  name: string,
  file: string,
  options: DefinitionSources & { readonly folder: SopFolder },
): Promise<FoundSop | InvalidSop> {
  try {
    const text = await readText(name, options);
    const document = await readSopDocument(text, name.endsWith(".toml") ? "toml" : "markdown");
    const plain = toPlainJson(document.raw);
    const checked = "fault" in plain
      ? { faults: [plain.fault] }
      : await checkDefinition(plain.value, { ...document, defaultId: basename(name).replace(/\.(toml|md)$/, "") });
    if ("faults" in checked) return { file, problems: await toProblems(file, checked.faults, document) };
    const { definition } = checked;
    return { definition, file, digest: canonicalDigest(definition), inWorkspace: options.folder.inWorkspace };
  } catch (error) {
    if (error instanceof TextFormatError) return { file, problems: [problem(file, error.message, error.line)] };
    if (error instanceof ToolError) return { file, problems: [problem(file, error.message)] };
    throw error;
  }
}

async function readText(name: string, options: DefinitionSources & { readonly folder: SopFolder }): Promise<string> {
  const { scope, path } = placeOf(options.folder, options);
  const opened = await options.files.open(join(path, name), scope);
  try {
    const buffer = new Uint8Array(SOP_LIMITS.fileBytes + 1);
    const length = await opened.read(buffer, 0);
    if (length > SOP_LIMITS.fileBytes) {
      throw new ToolError("file_too_large", `it is larger than ${SOP_LIMITS.fileBytes} bytes`);
    }
    const text = decodeText(buffer.subarray(0, length));
    if (text === undefined) throw new ToolError("binary_file", "it is not UTF-8 text");
    return withoutMark(text);
  } finally {
    await opened.close();
  }
}

async function toProblems(
  file: string,
  faults: readonly Fault[],
  document: SopDocument,
): Promise<readonly ConfigProblem[]> {
  const shown = faults.slice(0, MAX_PROBLEMS).map(async ({ path, reason }): Promise<ConfigProblem> => {
    const line = sectionLine(path, document) ?? await document.lineOf(path);
    if (path.length === 0) return problem(file, reason, line);
    const key = toKeyText(path);
    return { file, line, key, message: `Cannot use "${key}" (${file}:${line}): ${reason}` };
  });
  return await Promise.all(shown);
}

/** Returns the line of the heading under which the instructions of a Markdown step stand. */
function sectionLine([root, index, field]: Fault["path"], { raw, sections }: SopDocument): number | undefined {
  if (root !== "steps" || field !== "instructions") return undefined;
  // Written by the reader of Markdown, which makes a list of tables
  const { steps } = raw as { readonly steps?: Readonly<Record<string, unknown>>[] };
  const step = steps?.[Number(index)];
  return step === undefined || "instructions" in step ? undefined : sections.get(String(step["id"]))?.line;
}

function problem(file: string, reason: string, line?: number): ConfigProblem {
  const place = line === undefined ? file : `${file}:${line}`;
  return { file, line, key: undefined, message: `Cannot use the procedure (${place}): ${reason}` };
}

/**
 * Returns the definition with this id.
 * @throws {ToolError} `sop_invalid` with what is wrong with the file of that name, `not_found` with what there is
 */
export function findSop(id: string, { sops, invalid }: LoadedSops): FoundSop {
  const found = sops.find(({ definition }) => definition.id === id);
  if (found !== undefined) return found;
  const file = invalid.find(({ file }) => basename(file).replace(/\.(toml|md)$/, "") === id);
  if (file !== undefined) {
    throw new ToolError("sop_invalid", file.problems.map(({ message }) => message).join("\n"));
  }
  const ids = sops.map(({ definition }) => definition.id);
  const near = nearest(id, ids);
  const hint = near === undefined
    ? ids.length === 0
      ? "there are none; a file in {data_dir}/sops makes one"
      : `there are ${listSome(ids.map((known) => `"${known}"`), 20)}`
    : `did you mean "${near}"?`;
  throw new ToolError("not_found", `Cannot find the procedure ${JSON.stringify(id.slice(0, 64))}: ${hint}`);
}
