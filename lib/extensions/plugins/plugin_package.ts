import { hash } from "node:crypto";
import { canonicalDigest } from "../../base/json.ts";
import { exactLine, exactText } from "../../base/text.ts";
import type { PackageFile } from "../package_folder.ts";
import { mainFile, MANIFEST_NAME, parsePluginManifest, type PluginManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import { readTar, writeTar } from "./tar.ts";

/** Bytes of a package. */
export const MAX_PACKAGE_BYTES = 67_108_864;
/** Files and folders of a package. */
export const MAX_PACKAGE_FILES = 1_000;
/** UTF-16 units of a path in a package. */
const MAX_PATH = 240;
const MAX_PARTS = 16;

/** Names that Windows takes for devices, whatever their ending. */
const DEVICES = /^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)/i;
/** Characters that a name of a file may not have on one of the systems. */
const UNUSABLE = /[\\:*?"<>|]/;

/** Checked package: everything in it may be written. */
export interface PluginPackage {
  readonly manifest: PluginManifest;
  /** Files by path, the manifest among them */
  readonly files: readonly PackageFile[];
  /** SHA-256 over the path, content and mode of every file, hexadecimal: the same for a tar and for a folder */
  readonly digest: string;
}

/**
 * Reads a package. Nothing of it is written: a package that breaks a rule is refused as a whole.
 * @throws {ExtensionError} `package_invalid`, `package_too_large`, `manifest_invalid`, `tool_name_taken`, `hash_mismatch`
 */
export function readPackage(bytes: Uint8Array): PluginPackage {
  const { files, folders } = readTar(bytes, { maxBytes: MAX_PACKAGE_BYTES, maxFiles: MAX_PACKAGE_FILES });
  return toPackage(files, folders);
}

/** Writes a checked package as a tar, always with the same bytes. @throws {ExtensionError} see `writeTar` */
export function writePackage({ files }: Pick<PluginPackage, "files">): Uint8Array {
  return writeTar(files);
}

/**
 * Checks files as the content of a package: names, collisions, the manifest, and the digest of the file that it runs.
 * @param folders paths of further folders, whose names are checked alone. Default: none
 * @throws {ExtensionError} see `readPackage`
 */
export function toPackage(files: readonly PackageFile[], folders: readonly string[] = []): PluginPackage {
  const found = toUncheckedPackage(files, folders);
  checkMain(found.manifest, found.files);
  return found;
}

/**
 * Returns a WASM package of this digest whose module is another: everything else in it is what it was. undefined: it is no such package.
 * @throws {ExtensionError} as `readPackage`, but for `hash_mismatch`
 */
export function toChangedModule(files: readonly PackageFile[], digest: string): PluginPackage | undefined {
  const found = toUncheckedPackage(files, []);
  const main = mainFile(found.manifest);
  if (found.manifest.kind !== "wasm" || main === undefined) return undefined;
  return digestOf(found.files, main) === digest ? { ...found, digest } : undefined;
}

/** Checks everything but the digest of the file that runs. */
function toUncheckedPackage(files: readonly PackageFile[], folders: readonly string[]): PluginPackage {
  if (files.length > MAX_PACKAGE_FILES) throw wrong(`it has over ${MAX_PACKAGE_FILES} files`);
  checkPaths(files.map(({ path }) => path), folders);
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  const found = sorted.find(({ path }) => path === MANIFEST_NAME);
  if (found === undefined) throw wrong(`it has no ${MANIFEST_NAME} at its top`);
  const manifest = parsePluginManifest(found.bytes);
  return { manifest, files: sorted, digest: digestOf(sorted) };
}

/** Returns the SHA-256 of bytes, hexadecimal. */
export function sha256Of(bytes: Uint8Array): string {
  return hash("sha256", bytes);
}

/** @param main file that counts with the digest of the manifest, and not with its own. Default: none */
function digestOf(files: readonly PackageFile[], main?: { readonly path: string; readonly sha256: string }): string {
  return canonicalDigest(files.map(({ path, bytes, executable }) => {
    return [path, path === main?.path ? main.sha256 : sha256Of(bytes), executable];
  }));
}

/**
 * Checks that files may be written under these paths on every system, inside one folder, and that no two are one.
 * @param folders paths of further folders. Default: none
 * @throws {ExtensionError} `package_invalid`
 */
export function checkPaths(paths: readonly string[], folders: readonly string[] = []): void {
  for (const path of [...paths, ...folders]) checkPath(path);
  checkCollisions(paths, folders);
}

function checkPath(path: string): void {
  const told = exactLine(JSON.stringify(path.slice(0, MAX_PATH)));
  const parts = path.split("/");
  if (path === "") throw wrong("a file has no name");
  if (path.length > MAX_PATH || parts.length > MAX_PARTS) {
    throw wrong(`${told} is longer than ${MAX_PATH} characters, or deeper than ${MAX_PARTS} folders`);
  }
  if (path.startsWith("/") || /^[a-z]:/i.test(path)) throw wrong(`${told} is an absolute path`);
  if (parts.some((part) => part === ".." || part === "." || part === "")) {
    const wayOut = path.startsWith("./") ? "; make the package with postern plugin package" : "";
    throw wrong(`${told} has a part that is empty, "." or ".."${wayOut}`);
  }
  if (exactText(path) !== path || path.includes("\n")) throw wrong(`${told} has characters that a person cannot see`);
  if (UNUSABLE.test(path)) throw wrong(`${told} has a character that no file may have everywhere, such as \\ or :`);
  if (path !== path.normalize("NFC")) throw wrong(`${told} is not in the normal form of Unicode (NFC)`);
  if (parts.some((part) => /[. ]$|^ /.test(part))) throw wrong(`${told} has a part that ends with a dot or a blank`);
  if (parts.some((part) => DEVICES.test(part))) throw wrong(`${told} is the name of a device on Windows`);
}

/** Refuses two paths that are one file on some system, and a file that is the folder of another. */
function checkCollisions(paths: readonly string[], more: readonly string[]): void {
  const files = new Map<string, string>();
  const folders = new Map<string, string>();
  const addFolder = (folder: string) => {
    const known = folders.get(foldName(folder));
    if (known !== undefined && known !== folder) throw same(known, folder);
    folders.set(foldName(folder), folder);
  };
  const same = (one: string, other: string) => {
    const [a, b] = [one, other].map((path) => exactLine(JSON.stringify(path)));
    return wrong(a === b ? `${a} is in it twice` : `${a} and ${b} are the same name on some systems`);
  };
  for (const path of paths) {
    const key = foldName(path);
    const twin = files.get(key);
    if (twin !== undefined) throw same(twin, path);
    files.set(key, path);
    for (let at = path.indexOf("/"); at !== -1; at = path.indexOf("/", at + 1)) {
      addFolder(path.slice(0, at));
    }
  }
  for (const folder of more) addFolder(folder);
  for (const [key, path] of folders) {
    const file = files.get(key);
    if (file !== undefined) throw wrong(`${exactLine(JSON.stringify(path))} is a file and a folder at once`);
  }
}

/** Returns what file systems that know no case, or another normal form, would take a name for. */
function foldName(path: string): string {
  return path.normalize("NFKD").toUpperCase().toLowerCase().normalize("NFKC");
}

function checkMain(manifest: PluginManifest, files: readonly PackageFile[]): void {
  const main = mainFile(manifest);
  if (main === undefined) return;
  const file = files.find(({ path }) => path === main.path);
  if (file === undefined) throw wrong(`"${main.path}" is missing, which ${MANIFEST_NAME} names`);
  const found = sha256Of(file.bytes);
  if (found !== main.sha256) {
    throw new ExtensionError(
      "hash_mismatch",
      `Cannot use the package: "${main.path}" has the SHA-256 ${found}, and ${MANIFEST_NAME} says ${main.sha256}; make the package with postern plugin package`,
    );
  }
  if (manifest.kind === "process" && !file.executable) throw wrong(`"${main.path}" is not executable`);
}

function wrong(reason: string): ExtensionError {
  return new ExtensionError("package_invalid", `Cannot use the package: ${reason}`);
}
