import { createHash } from "node:crypto";
import { opendir, realpath, stat } from "node:fs/promises";
import { basename, join, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest } from "../../base/json.ts";
import { withoutMark } from "../../config/toml.ts";
import type { Files, FileScope } from "../../system/files/files.ts";
import { MAX_SKILL_BYTES, readSkillDocument, type SkillDocument, type SkillFault } from "./skill_document.ts";

/** Place of skills: `own` holds what was installed, `user` is shared with other programs, `workspace` came with a project. */
export type SkillLayer = "own" | "user" | "workspace";

/** Folder that skills are looked for in. */
export interface SkillFolder {
  /** Absolute */
  readonly path: string;
  readonly layer: SkillLayer;
  /** Name of the folder for people */
  readonly shownAs: string;
}

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
  /** Undefined for a skill that cannot be used */
  readonly document: SkillDocument | undefined;
  readonly faults: readonly SkillFault[];
  /** All files, SKILL.md among them, sorted by path */
  readonly files: readonly SkillFile[];
  /** SHA-256 over the path and content of every file, hexadecimal */
  readonly digest: string;
}

/** Skills of one folder, and why the folder as a whole or a part of it was not read. */
export interface SkillsOfFolder {
  readonly skills: readonly FoundSkill[];
  readonly problems: readonly string[];
}

/** File that makes a folder a skill. */
export const SKILL_NAME = "SKILL.md";

/** Names that are read of one folder */
const MAX_ENTRIES = 2_000;
/** Skills of one folder */
const MAX_SKILLS = 200;
/** Files of one skill */
const MAX_FILES = 500;
/** Bytes of all files of one skill */
const MAX_BYTES = 33_554_432;

/** Services and bounds of a search for skills. */
export interface FindSkillsOptions {
  readonly files: Files;
  /** Absolute path of the folder that the agent works in */
  readonly workspaceRoot: string;
  readonly signal: AbortSignal;
}

/**
 * Returns the folders of skills, the first to count first: those of `[skills] dirs`, `{data_dir}/skills`, those of the user that other
 * programs share, and those of the workspace. So no skill of a workspace takes the place of the user's.
 */
export function skillFolders(
  { dirs, dataDir, home, workspaceRoot }: {
    /** Absolute */
    readonly dirs: readonly string[];
    readonly dataDir: string;
    readonly home: string;
    readonly workspaceRoot: string;
  },
): readonly SkillFolder[] {
  const own = [...dirs, join(dataDir, "skills")].map((path) => ({ path, layer: "own" as const, shownAs: path }));
  const shared = SHARED.flatMap((path) => [{ path: join(home, path), layer: "user" as const, shownAs: `~/${path}` }]);
  // A workspace that is the home folder has no skills of its own
  const ofWorkspace = workspaceRoot === home
    ? []
    : SHARED.map((path) => ({ path: join(workspaceRoot, path), layer: "workspace" as const, shownAs: path }));
  return [...own, ...shared, ...ofWorkspace];
}

const SHARED = [".agents/skills", ".claude/skills"];

/**
 * Reads the skills of a folder: its folders with a SKILL.md. A folder that is not there has none.
 *
 * Links to folders are followed, as tools that install skills make them; those of a workspace only inside it. Links within a skill are
 * not followed. Files are opened as tools open theirs.
 */
export async function findSkills(folder: SkillFolder, options: FindSkillsOptions): Promise<SkillsOfFolder> {
  const listed = await namesIn(folder, options);
  if ("problem" in listed) return { skills: [], problems: [`Cannot read ${folder.shownAs}: ${listed.problem}`] };
  const skills: FoundSkill[] = [];
  const problems: string[] = [];
  for (const name of listed.names) {
    const shownAs = `${folder.shownAs}/${name}`;
    try {
      const found = await readSkill(join(folder.path, name), { ...options, layer: folder.layer, shownAs });
      if (found !== undefined) skills.push(found);
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      problems.push(`Cannot use the skill ${shownAs}: ${error.message}`);
    }
  }
  return { skills, problems };
}

async function namesIn(
  { path, layer }: SkillFolder,
  { workspaceRoot }: FindSkillsOptions,
): Promise<{ readonly names: readonly string[] } | { readonly problem: string }> {
  const names: string[] = [];
  try {
    const real = await realpath(path);
    if (layer === "workspace" && !await isInside(real, workspaceRoot)) {
      return { problem: "the folder leads out of the workspace" };
    }
    let seen = 0;
    for await (const { name } of await opendir(real)) {
      if (++seen > MAX_ENTRIES) return { problem: `it has over ${MAX_ENTRIES} entries` };
      const isSkill = !name.startsWith(".") &&
        await stat(join(real, name, SKILL_NAME)).then((info) => info.isFile(), () => false);
      if (isSkill) names.push(name);
      if (names.length > MAX_SKILLS) return { problem: `it has over ${MAX_SKILLS} skills` };
    }
  } catch (error) {
    const { code } = error as { readonly code?: string };
    return code === "ENOENT" || code === "ENOTDIR" ? { names } : { problem: code ?? String(error) };
  }
  return { names: names.sort() };
}

async function isInside(real: string, root: string): Promise<boolean> {
  return `${real}${sep}`.startsWith(`${await realpath(root)}${sep}`);
}

/** Where a skill lies. */
interface SkillPlace extends FindSkillsOptions {
  readonly layer: SkillLayer;
  readonly shownAs: string;
}

/**
 * Reads the skill in a folder. Undefined where the folder went away.
 * @throws {ToolError} a folder out of the workspace, too many files, too many bytes, and as Files.open
 */
export async function readSkill(path: string, place: SkillPlace): Promise<FoundSkill | undefined> {
  const { layer, workspaceRoot, shownAs } = place;
  const folder = await realpath(path).catch(() => undefined);
  if (folder === undefined) return undefined;
  if (layer === "workspace" && !await isInside(folder, workspaceRoot)) {
    throw new ToolError("path_outside_root", "the folder leads out of the workspace");
  }
  const content = await readContent(folder, place);
  const text = decoded(content.main);
  const { document, faults } = text === undefined
    ? {
      document: undefined,
      faults: [fatal(content.main === undefined ? "it cannot be read" : "it is not UTF-8 text")],
    }
    : await readSkillDocument(text, basename(path));
  return {
    name: document?.name ?? basename(path),
    ...{ layer, folder, shownAs, document, faults },
    files: content.files,
    digest: content.digest,
  };
}

function fatal(reason: string): SkillFault {
  return { line: 1, key: undefined, reason, isFatal: true };
}

function decoded(bytes: Uint8Array | undefined): string | undefined {
  try {
    return bytes && withoutMark(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

/** Returns the scope of the files of one skill. */
export function scopeOfSkill(folder: string): FileScope {
  // Its own root counts: a skill may lie where tools may not go
  return { workspaceRoot: folder, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false };
}

async function readContent(folder: string, { files, signal }: SkillPlace) {
  const found: SkillFile[] = [];
  const digests: (readonly [string, string])[] = [];
  let main: Uint8Array | undefined;
  let left = MAX_BYTES;
  const walk = files.walk(".", scopeOfSkill(folder), { respectGitignore: false, maxEntries: 2 * MAX_FILES, signal });
  for (;;) {
    const { value, done } = await walk.next();
    if (done === true) {
      if (value.truncated) throw tooMany(`it has over ${MAX_FILES} files`);
      break;
    }
    for (const { path, open } of value) {
      const bytes = await readWhole(await open(), left);
      left -= bytes.length;
      if (path === SKILL_NAME) main = bytes.length > MAX_SKILL_BYTES ? undefined : bytes;
      found.push({ path, size: bytes.length });
      digests.push([path, createHash("sha256").update(bytes).digest("hex")]);
      if (found.length > MAX_FILES) throw tooMany(`it has over ${MAX_FILES} files`);
    }
  }
  const byPath = (a: string, b: string) => (a < b ? -1 : 1);
  return {
    main,
    files: found.sort((a, b) => byPath(a.path, b.path)),
    digest: canonicalDigest(digests.sort(([a], [b]) => byPath(a, b))),
  };
}

async function readWhole(file: Awaited<ReturnType<Files["open"]>>, most: number): Promise<Uint8Array> {
  try {
    if (file.size > most) throw tooMany(`it has over ${MAX_BYTES} bytes`);
    // A byte more shows a file that grew
    const buffer = new Uint8Array(file.size + 1);
    const length = await file.read(buffer, 0);
    if (length > file.size) throw new ToolError("path_changed", "a file of it changed while it was read");
    return buffer.subarray(0, length);
  } finally {
    await file.close();
  }
}

function tooMany(reason: string): ToolError {
  return new ToolError("file_too_large", reason);
}
