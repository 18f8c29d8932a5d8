import { hash } from "node:crypto";
import { lstat, readlink, realpath } from "node:fs/promises";
import { basename, join, sep } from "node:path";
import { canonicalDigest } from "../../base/json.ts";
import type { SkillLayer } from "../../base/records/extension_views.ts";
import { withoutMark } from "../../config/toml.ts";
import { listPlainFolder, readPlainFile } from "../package_folder.ts";
import { MAX_SKILL_BYTES, readSkillDocument, type SkillDocument, type SkillFault } from "./skill_document.ts";

/** File of a skill. */
export interface SkillFile {
  /** Relative to the skill's folder, with `/` */
  readonly path: string;
  /** Bytes */
  readonly size: number;
}

/** Skill as it was found. */
export interface FoundSkill {
  /** Name that it is called by: the document's; where there is none, the folder's */
  readonly name: string;
  readonly layer: SkillLayer;
  /** Absolute real path of the skill's folder */
  readonly folder: string;
  /** Name of the folder for people */
  readonly shownAs: string;
  /** Fields of the document. Undefined for a skill that cannot be used */
  readonly document: SkillHead | undefined;
  readonly faults: readonly SkillFault[];
  /** All files, SKILL.md among them, sorted by path */
  readonly files: readonly SkillFile[];
  /** SHA-256 over the path and content of every file and the target of every link, hexadecimal */
  readonly digest: string;
}

/** Document of a skill without its instructions, which are read when they are asked for. */
export type SkillHead = Omit<SkillDocument, "body" | "bodyLine">;

/** Skill with the bytes of its files. */
export interface WholeSkill {
  readonly skill: FoundSkill;
  /** Document with its instructions. Undefined for a skill that cannot be used */
  readonly document: SkillDocument | undefined;
  /** Bytes by path */
  readonly contents: ReadonlyMap<string, Uint8Array>;
  /** Paths of files that may be started as programs */
  readonly executables: ReadonlySet<string>;
  /** Targets of links by path, which are not followed */
  readonly links: ReadonlyMap<string, string>;
}

/** File that makes a folder a skill. */
export const SKILL_NAME = "SKILL.md";
/** Names that authors give this file, too. The first that is there counts */
export const SKILL_NAMES = [SKILL_NAME, "skill.md", "Skill.md", "SKILL.MD"];
/** Files of one skill */
export const MAX_SKILL_FILES = 500;
/** Bytes of all files of one skill */
export const MAX_SKILL_FOLDER_BYTES = 33_554_432;
/** Folders in each other */
const MAX_DEPTH = 16;
/** Folders, files and links of one skill that are looked at */
const MAX_ENTRIES = 2 * MAX_SKILL_FILES;

/** Error for a folder that cannot be read as a skill. The message is the reason. */
export class SkillFolderError extends Error {
  override readonly name = "SkillFolderError";
}

/** Place of a skill, for `readSkill`. */
export interface SkillPlace {
  readonly layer: SkillLayer;
  /** Name of the folder for people */
  readonly shownAs: string;
  /** Absolute real path of the folder that the agent works in. A skill that lies in it is one of the workspace, however it was reached */
  readonly workspace: string;
  /** Absolute real path of the data directory, whose skills are the operator's also where it lies in the workspace */
  readonly dataDir: string;
}

/**
 * Reads the skill in a folder. Undefined where the folder went away. Links within it are not followed: they are a part of its digest.
 * @throws {SkillFolderError} a folder out of the workspace, too many files, too many bytes, a file that cannot be read
 */
export async function readSkill(path: string, place: SkillPlace): Promise<WholeSkill | undefined> {
  const { layer, workspace, dataDir, shownAs } = place;
  const folder = await realpath(path).catch(() => undefined);
  if (folder === undefined) return undefined;
  const isOfWorkspace = isInside(folder, workspace) && !isInside(folder, dataDir);
  if (layer === "workspace" && !isOfWorkspace) throw new SkillFolderError("the folder leads out of the workspace");
  const { contents: found, links, executables } = await readSkillFiles(folder);
  const named = SKILL_NAMES.find((name) => found.has(name)) ?? SKILL_NAME;
  const contents = new Map([...found].map(([file, bytes]) => [file === named ? SKILL_NAME : file, bytes]));
  const main = contents.get(SKILL_NAME);
  if (main === undefined) throw new SkillFolderError(`it has no ${SKILL_NAME}`);
  const { document, faults } = await readMain(main, basename(path));
  const skill: FoundSkill = {
    name: document?.name ?? basename(path),
    layer: isOfWorkspace ? "workspace" : layer,
    ...{ folder, shownAs },
    document: document === undefined ? undefined : headOf(document),
    faults: [
      ...faults,
      ...(named === SKILL_NAME ? [] : [warning(`its file is called ${named}; the format calls it ${SKILL_NAME}`)]),
      ...[...links.keys()].sort().map((file) =>
        warning(`its file ${JSON.stringify(file)} is a link, which is not followed`)
      ),
    ],
    files: [...contents].map(([file, { length: size }]) => ({ path: file, size })),
    digest: skillDigest(contents, links),
  };
  return { skill, document, contents, executables, links };
}

function headOf({ body: _body, bodyLine: _line, ...head }: SkillDocument): SkillHead {
  return head;
}

/** Tells whether a path is a folder or lies in it. Both are real paths. */
export function isInside(path: string, folder: string): boolean {
  return `${path}${sep}`.startsWith(folder.endsWith(sep) ? folder : `${folder}${sep}`);
}

/** Returns the text of a file. Undefined for bytes that are no UTF-8 text. */
export function textOfFile(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return withoutMark(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

/**
 * Returns the digest of a skill's files, whose order does not count.
 * @param links targets by path. Default: none
 */
export function skillDigest(
  contents: ReadonlyMap<string, Uint8Array>,
  links: ReadonlyMap<string, string> = new Map(),
): string {
  const entries = [
    ...[...contents].map(([path, bytes]) => [path, "file", hash("sha256", bytes)]),
    ...[...links].map(([path, target]) => [path, "link", target]),
  ];
  return canonicalDigest(entries.sort(([a = ""], [b = ""]) => byName(a, b)));
}

async function readMain(bytes: Uint8Array, folder: string) {
  const fatal = (reason: string) => ({
    document: undefined,
    faults: [{ line: 1, key: undefined, reason, isFatal: true }],
  });
  if (bytes.length > MAX_SKILL_BYTES) {
    return fatal(
      `it has ${bytes.length} bytes, and ${MAX_SKILL_BYTES} are the most; move details to files of their own`,
    );
  }
  const text = textOfFile(bytes);
  return text === undefined ? fatal("it is not UTF-8 text") : await readSkillDocument(text, folder);
}

function warning(reason: string): SkillFault {
  return { line: 1, key: undefined, reason, isFatal: false };
}

/** Reads all files below a folder but those of git. @param folder absolute, without links @throws {SkillFolderError} see `readSkill` */
export async function readSkillFiles(folder: string) {
  const files = new Map<string, Uint8Array>();
  const links = new Map<string, string>();
  const executables = new Set<string>();
  let left = MAX_SKILL_FOLDER_BYTES;
  for (const { path, kind } of await listEntries(folder)) {
    if (kind === "link") {
      links.set(path, await readlink(join(folder, path)).catch(() => ""));
      continue;
    }
    if (files.size >= MAX_SKILL_FILES) throw new SkillFolderError(`it has over ${MAX_SKILL_FILES} files`);
    const { bytes, executable } = await readWhole(join(folder, path), { path, most: left });
    left -= bytes.length;
    files.set(path, bytes);
    if (executable) executables.add(path);
  }
  return { contents: files, links, executables };
}

/** Entry of a skill's folder. */
interface Entry {
  readonly path: string;
  readonly kind: "file" | "link";
}

async function listEntries(folder: string): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  const folders = [""];
  let seen = 0;
  for (let place = folders.pop(); place !== undefined; place = folders.pop()) {
    for (const entry of await listPlainFolder(join(folder, place), MAX_ENTRIES).catch(unreadable)) {
      if (++seen > MAX_ENTRIES) throw new SkillFolderError(`it has over ${MAX_ENTRIES} files and folders`);
      const path = place === "" ? entry.name : `${place}/${entry.name}`;
      // A clone's own records are no part of the skill
      if (entry.name === ".git") continue;
      if (entry.isDirectory()) folders.push(path);
      else if (entry.isFile()) found.push({ path, kind: "file" });
      else if (entry.isSymbolicLink()) found.push({ path, kind: "link" });
      else throw new SkillFolderError(`its file ${JSON.stringify(path)} is no plain file`);
    }
    if (folders.some((path) => path.split("/").length > MAX_DEPTH)) {
      throw new SkillFolderError(`it is deeper than ${MAX_DEPTH} folders`);
    }
  }
  return found.sort((a, b) => byName(a.path, b.path));
}

/** Reads a file of a skill. */
async function readWhole(
  place: string,
  { path, most }: { readonly path: string; readonly most: number },
): Promise<{ readonly bytes: Uint8Array; readonly executable: boolean }> {
  const read = await readPlainFile(place, most).catch(unreadable);
  switch (read) {
    case "no_file":
      throw new SkillFolderError(`its file ${JSON.stringify(path)} is no plain file`);
    case "too_large":
      throw new SkillFolderError(`it has over ${MAX_SKILL_FOLDER_BYTES} bytes`);
    case "grew":
      throw new SkillFolderError(`its file ${JSON.stringify(path)} changed while it was read`);
    default:
      return read;
  }
}

function unreadable(cause: NodeJS.ErrnoException): never {
  throw new SkillFolderError(`a part of it cannot be read (${cause.code ?? cause.message})`, { cause });
}

function byName(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Sizes and times of all files of a skill, a line for each: another text means that the skill may have changed. */
export interface SkillStamp {
  readonly stamp: string;
  /** Number of files and links */
  readonly entries: number;
}

/** Looks at all files of a skill, and reads none. Never throws. */
export async function stampOfSkill(path: string): Promise<SkillStamp> {
  const folder = await realpath(path).catch(() => undefined);
  if (folder === undefined) return { stamp: "", entries: 1 };
  // A folder that is refused now is another than one that was not
  const entries = await listEntries(folder).catch((error: Error) => [{ path: SKILL_NAME }, { path: error.message }]);
  const stamps = await Promise.all(entries.map(async (entry) => {
    const info = await lstat(join(folder, entry.path), { bigint: true }).catch(() => undefined);
    return info === undefined ? entry.path : `${entry.path} ${info.ino} ${info.size} ${info.mtimeNs} ${info.ctimeNs}`;
  }));
  return { stamp: [folder, ...stamps].join("\n"), entries: entries.length };
}
