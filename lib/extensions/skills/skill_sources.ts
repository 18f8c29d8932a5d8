import { posix } from "node:path";
import { promisify } from "node:util";
import { gunzip } from "node:zlib";
import { systemCodeOf } from "../../base/errors.ts";
import { exactLine } from "../../base/text.ts";
import { DocumentError } from "../../documents/document_error.ts";
import { readZip } from "../../documents/read_zip.ts";
import { createWorkBudget } from "../../documents/work_budget.ts";
import type { PackageFile } from "../package_folder.ts";
import { checkPaths } from "../plugins/plugin_package.ts";
import { ExtensionError } from "../extension_error.ts";
import { readTar, writeTar } from "../plugins/tar.ts";
import {
  MAX_SKILL_FILES,
  MAX_SKILL_FOLDER_BYTES,
  SKILL_NAME,
  SKILL_NAMES,
  textOfFile,
  type WholeSkill,
} from "./read_skill.ts";
import { faultOfName, readSkillDocument } from "./skill_document.ts";

/** Bytes of an archive, packed */
export const MAX_ARCHIVE_BYTES = 67_108_864;
/** Bytes of an archive, unpacked: it may hold more skills than the one that is taken */
const MAX_UNPACKED_BYTES = 134_217_728;
/** Files of an archive */
const MAX_ARCHIVE_FILES = 20_000;
/** Time for taking an archive apart, in ms */
const UNPACK_MS = 20_000;

/**
 * Takes a skill out of an archive: tar, tar.gz or zip. Nothing is written. Links, names that are not plain everywhere, names that are one on
 * some system, and sizes beyond the bounds are refused.
 * @throws {ExtensionError} `skill_invalid`, `skill_too_large`
 */
export async function skillFromArchive(bytes: Uint8Array, name: string): Promise<readonly PackageFile[]> {
  checkSkillName(name);
  if (bytes.length > MAX_ARCHIVE_BYTES) throw tooLarge(`the archive has over ${MAX_ARCHIVE_BYTES} bytes`);
  if (bytes[0] === 0x50 && bytes[1] === 0x4b) return await skillAmong(refusing(() => unzip(bytes, name)), name);
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  const tar = isPacked ? await unpack(bytes) : bytes;
  return await skillAmong(refusing(() => filesOfTar(tar)), name);
}

/** Refuses a name that no skill may have, also as a part of a path. @throws {ExtensionError} `skill_invalid` */
export function checkSkillName(name: string): void {
  const fault = faultOfName(name);
  if (fault !== undefined) throw invalid(`the name ${JSON.stringify(name.slice(0, 100))} cannot be used: ${fault}`);
}

/**
 * Chooses the folder of a skill among the paths of many files: the one with this name, otherwise the only one.
 * @returns its path with `/` at the end, empty for the top
 * @throws {ExtensionError} `skill_invalid`
 */
export function chooseFolder(paths: readonly string[], name: string): string {
  const outside = paths.find((path) => path.startsWith("/") || path.includes("\\") || path.split("/").includes(".."));
  if (outside !== undefined) throw invalid(`${exactLine(JSON.stringify(outside.slice(0, 200)))} leads out of it`);
  const mains = paths.filter((path) => SKILL_NAMES.includes(posix.basename(path)));
  const folders = [...new Set(mains.map((path) => posix.dirname(path)))];
  if (folders.length === 0) throw invalid(`it has no ${SKILL_NAME}`);
  const named = shallowest(folders.filter((folder) => posix.basename(folder) === name));
  const found = named.length > 0 ? named : shallowest(folders);
  const [folder, another] = found;
  if (folder === undefined || another !== undefined) {
    const names = [...new Set(found.map((place) => place === "." ? "the top" : place))].sort().slice(0, 50);
    throw invalid(`it has several skills; name one of them: ${exactLine(names.join(", "))}`);
  }
  return folder === "." ? "" : `${folder}/`;
}

/** Returns those that are the least deep. */
function shallowest(folders: readonly string[]): readonly string[] {
  const depth = (folder: string) => (folder === "." ? 0 : folder.split("/").length);
  const least = Math.min(...folders.map(depth));
  return folders.filter((folder) => depth(folder) === least);
}

/** Takes the files of a skill from among those of an archive, and checks them. @throws {ExtensionError} `skill_invalid`, `skill_too_large` */
export async function skillAmong(all: readonly PackageFile[], name: string): Promise<readonly PackageFile[]> {
  const folder = chooseFolder(all.map(({ path }) => path), name);
  const files = all.filter(({ path }) => path.startsWith(folder) && !isOfGit(path.slice(folder.length)))
    .map((file) => ({ ...file, path: file.path.slice(folder.length) }))
    .map((file) => ({ ...file, path: SKILL_NAMES.includes(file.path) ? SKILL_NAME : file.path }));
  refusing(() => checkPaths(files.map(({ path }) => path)));
  if (files.length > MAX_SKILL_FILES) throw tooLarge(`it has over ${MAX_SKILL_FILES} files`);
  const total = files.reduce((sum, { bytes }) => sum + bytes.length, 0);
  if (total > MAX_SKILL_FOLDER_BYTES) throw tooLarge(`it has over ${MAX_SKILL_FOLDER_BYTES} bytes`);
  const text = textOfFile(files.find(({ path }) => path === SKILL_NAME)?.bytes ?? new Uint8Array([0]));
  if (text === undefined) throw invalid(`its ${SKILL_NAME} is no UTF-8 text`);
  const { document, faults } = await readSkillDocument(text, name);
  const fault = faults.find(({ isFatal }) => isFatal);
  if (document === undefined) {
    const key = fault?.key === undefined ? "" : `"${fault.key}": `;
    throw invalid(`${SKILL_NAME}:${fault?.line ?? 1}: ${key}${fault?.reason ?? "it cannot be read"}`);
  }
  if (document.name !== name) throw invalid(`it is called ${JSON.stringify(document.name)}; install it with that name`);
  return files;
}

function isOfGit(path: string): boolean {
  return path.split("/").includes(".git");
}

/** Reads the files of a tar. @throws {ExtensionError} */
export function filesOfTar(bytes: Uint8Array): readonly PackageFile[] {
  const { files } = readTar(bytes, {
    maxBytes: MAX_UNPACKED_BYTES,
    maxFiles: MAX_ARCHIVE_FILES,
    takesExtended: true,
  });
  return files.map(({ path, ...file }) => ({ ...file, path: path.replace(/^(\.\/)+/, "") }));
}

async function unpack(bytes: Uint8Array): Promise<Uint8Array> {
  try {
    // Unpacking stops at the bound
    return await promisify(gunzip)(bytes, { maxOutputLength: MAX_UNPACKED_BYTES });
  } catch (cause) {
    if (systemCodeOf(cause) === "ERR_BUFFER_TOO_LARGE") {
      throw tooLarge(`the archive holds over ${MAX_UNPACKED_BYTES} bytes`);
    }
    throw invalid("the archive cannot be unpacked", cause);
  }
}

/** Takes the files of the skill alone out of a zip. */
function unzip(bytes: Uint8Array, name: string): readonly PackageFile[] {
  const budget = createWorkBudget(
    { timeMs: UNPACK_MS, maxParts: MAX_ARCHIVE_FILES, maxInflatedBytes: MAX_UNPACKED_BYTES },
    { stopped: () => false },
  );
  const zip = readZip(bytes, budget);
  const all = zip.parts.filter((part) => !part.name.endsWith("/"));
  const folder = chooseFolder(all.map((part) => part.name), name);
  const files = all.filter((part) => part.name.startsWith(folder));
  const link = files.find(({ isLink }) => isLink);
  if (link !== undefined) throw invalid(`${exactLine(JSON.stringify(link.name.slice(0, 200)))} is a link`);
  const names = new Set<string>();
  for (const { name } of files) {
    const key = name.toLowerCase();
    if (names.has(key)) throw invalid(`${exactLine(JSON.stringify(name.slice(0, 200)))} is in it twice`);
    names.add(key);
  }
  return files.map(({ name, isExecutable }) => {
    budget.step();
    const content = zip.read(name, MAX_SKILL_FOLDER_BYTES) ?? new Uint8Array();
    return { path: name, bytes: content, executable: isExecutable };
  });
}

/** Packs the files of a skill below a folder of its name, as `skillFromArchive` takes it. */
export function packSkill(
  name: string,
  { contents, executables }: Pick<WholeSkill, "contents" | "executables">,
): Uint8Array {
  const files = [...contents].map(([path, bytes]) => ({
    path: `${name}/${path}`,
    bytes,
    executable: executables.has(path),
  }));
  return writeTar(files, { writesExtended: true });
}

/** Turns refusals of the readers into those of a skill. */
function refusing<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof DocumentError) {
      throw cause.code === "document_too_large" ? tooLarge(cause.message, cause) : invalid(cause.message, cause);
    }
    if (!(cause instanceof ExtensionError) || cause.code.startsWith("skill_")) throw cause;
    const reason = cause.message.replace(/^Cannot use the package: /, "").replace(/; make the package with .*$/, "");
    throw cause.code === "package_too_large" ? tooLarge(reason, cause) : invalid(reason, cause);
  }
}

function invalid(reason: string, cause?: unknown): ExtensionError {
  return new ExtensionError("skill_invalid", `Cannot install the skill: ${reason}`, { cause });
}

function tooLarge(reason: string, cause?: unknown): ExtensionError {
  return new ExtensionError("skill_too_large", `Cannot install the skill: ${reason}`, { cause });
}
