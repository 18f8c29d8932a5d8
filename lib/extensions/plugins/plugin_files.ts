import type { Dirent } from "node:fs";
import { lstat, mkdir, readdir, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { syncFolder } from "../../base/durable_files.ts";
import { messageOf } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { listPlainFolder, type PackageFile, readPlainFile, writePackageFolder } from "../package_folder.ts";
import {
  mainFile,
  MANIFEST_NAME,
  MAX_MANIFEST_BYTES,
  NO_DIGEST,
  parsePluginManifest,
  type PluginManifest,
} from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import {
  MAX_PACKAGE_BYTES,
  MAX_PACKAGE_FILES,
  type PluginPackage,
  sha256Of,
  toChangedModule,
  toPackage,
} from "./plugin_package.ts";

/** Entries of a folder that are looked at. */
export const MAX_ENTRIES = 10_000;
/** Prefix of a folder that a package is being written to. */
const UNFINISHED = ".new-";
const DIGEST = /^[0-9a-f]{64}$/;
/** Files beside the one that a WASM or FFI plugin runs which belong to its package. */
const DOCUMENTS = /^(readme|license|licence|notice|changelog)(\.(md|txt))?$/i;
/** Files and folders of a process plugin that never belong to its package. */
const LEFT_OUT = /^\.|^(__pycache__|target)$|\.(tar|tgz|pyc)$/;

/** Bytes and files that a plugin folder may have. */
export interface FolderBounds {
  readonly bytes: number;
  readonly files: number;
}

const PACKAGE_BOUNDS: FolderBounds = { bytes: MAX_PACKAGE_BYTES, files: MAX_PACKAGE_FILES };

/** Folder of the packages: `{data_dir}/plugins`, with one folder for each digest. */
export interface PluginFiles {
  /** Returns the absolute path of the folder of a digest. */
  folderOf(digest: string): string;
  /**
   * Writes a package. On disk when it resolves, whole or not at all: a crash at any moment leaves nothing that counts.
   * @throws {ExtensionError} `package_invalid` when the disk refuses
   */
  write(plugin: PluginPackage): Promise<void>;
  /**
   * Reads a written package again and compares it with its digest.
   * @param options.onChangedModule takes the reason when nothing but the module of a WASM plugin has changed, which is then given as it
   * is. Default: it is refused too
   * @throws {ExtensionError} `plugin_changed`
   */
  read(
    digest: string,
    options?: { readonly onChangedModule?: ((reason: string) => void) | undefined },
  ): Promise<PluginPackage>;
  /** Removes everything but these digests: also what an interrupted writing left. Never throws */
  keepOnly(digests: ReadonlySet<string>): Promise<void>;
}

/** Creates the files of packages. Makes the folder at the first write. @param root absolute path of `{data_dir}/plugins` */
export function createPluginFiles({ root, random }: { readonly root: string; readonly random: Random }): PluginFiles {
  const folderOf = (digest: string) => join(root, digest);
  return {
    folderOf,
    async write(plugin) {
      const target = folderOf(plugin.digest);
      if (await isWhole(target, plugin.digest)) return;
      await mkdir(root, { recursive: true, mode: 0o700 });
      const fresh = join(root, random.id(UNFINISHED));
      try {
        await writePackageFolder(fresh, plugin.files);
        // A damaged folder of this digest makes place for the right one
        await rm(target, { recursive: true, force: true });
        await rename(fresh, target);
        await syncFolder(root);
      } catch (cause) {
        await rm(fresh, { recursive: true, force: true }).catch(() => {});
        const reason = messageOf(cause);
        throw new ExtensionError("package_invalid", `Cannot write the package to "${root}": ${reason}`, { cause });
      }
    },
    async read(digest, { onChangedModule } = {}) {
      try {
        const files = await readFiles(folderOf(digest));
        const other = onChangedModule === undefined ? undefined : toChangedModule(files, digest);
        if (other !== undefined) {
          tellChanged(other, onChangedModule);
          return other;
        }
        const found = toPackage(files);
        if (found.digest !== digest) throw new TypeError(`its content now has the digest ${found.digest}`);
        return found;
      } catch (cause) {
        throw changed(digest, messageOf(cause), cause);
      }
    },
    async keepOnly(digests) {
      const names = await readdir(root).catch(() => []);
      const ours = names.filter((name) => name.startsWith(UNFINISHED) || (DIGEST.test(name) && !digests.has(name)));
      for (const name of ours) await rm(join(root, name), { recursive: true, force: true }).catch(() => {});
    },
  };
}

/**
 * Reads a plugin from a folder, with the files that its package would have: for WASM and FFI the manifest, the file that runs, and
 * README, LICENSE and the like; for a process everything but hidden files, archives and caches. Links are refused.
 * @param options.module content of the file that runs, in place of the one in the folder. Its digest is put into the manifest
 * @param options.fillDigest puts the digest of the file that runs into the manifest: in any case, or where it is NO_DIGEST. Default: a wrong
 * digest is refused
 * @param options.most bytes and files that it may have. Default: those of a package
 * @param options.isFound true for one in a folder of plugins, which may be no link either. Default false
 * @param options.onRead called with the bytes of each file that was read
 * @throws {ExtensionError} see `readPackage`
 */
export async function readPluginFolder(
  place: string,
  options: {
    readonly module?: Uint8Array | undefined;
    readonly fillDigest?: "always" | "missing" | undefined;
    readonly most?: FolderBounds;
    readonly isFound?: boolean;
    readonly onRead?: (bytes: number) => void;
  } = {},
): Promise<PluginPackage> {
  const folder = await realPlaceOf(place, options.isFound);
  const { most = PACKAGE_BOUNDS } = options;
  const manifestFile = await readPart(folder, { path: MANIFEST_NAME, maxBytes: MAX_MANIFEST_BYTES });
  const manifest = parsePluginManifest(manifestFile.bytes);
  const names = await filesOf(folder, manifest, most.files);
  const files: PackageFile[] = [];
  let left = most.bytes;
  for (const path of names) {
    const isReplaced = options.module !== undefined && path === mainFile(manifest)?.path;
    const file = isReplaced
      ? { path, bytes: options.module ?? new Uint8Array(), executable: false }
      : await readPart(folder, { path, maxBytes: left });
    left -= file.bytes.length;
    options.onRead?.(file.bytes.length);
    files.push(file);
  }
  const { fillDigest, module } = options;
  const isFilled = fillDigest === "always" || module !== undefined ||
    (fillDigest === "missing" && mainFile(manifest)?.sha256 === NO_DIGEST);
  return toPackage([isFilled ? withDigest(manifestFile, { manifest, files }) : manifestFile, ...files]);
}

/**
 * Returns the files of a plugin's package in its folder with their sizes and times, a line for each: another text means that the plugin may
 * have changed. Of a folder that cannot be used, the manifest alone counts. Never throws.
 * @param maxFiles files that the folder may have. Default: those of a package
 */
export async function stampOfFolder(folder: string, maxFiles = MAX_PACKAGE_FILES): Promise<string> {
  const names = await namesIn(folder, maxFiles).catch(() => [MANIFEST_NAME]);
  const stamps = await Promise.all(names.map(async (path) => {
    const info = await stat(join(folder, path), { bigint: true }).catch(() => undefined);
    return info === undefined ? path : `${path} ${info.ino} ${info.size} ${info.mtimeNs} ${info.ctimeNs}`;
  }));
  return stamps.sort().join("\n");
}

async function namesIn(place: string, maxFiles: number): Promise<readonly string[]> {
  const folder = await realPlaceOf(place);
  const { bytes } = await readPart(folder, { path: MANIFEST_NAME, maxBytes: MAX_MANIFEST_BYTES });
  return [MANIFEST_NAME, ...await filesOf(folder, parsePluginManifest(bytes), maxFiles)];
}

/** Lists the files that belong to the package of a plugin, beside its manifest. */
async function filesOf(folder: string, manifest: PluginManifest, maxFiles: number): Promise<readonly string[]> {
  const names = manifest.kind === "process"
    ? await listFiles(folder, { isWanted: (name) => !LEFT_OUT.test(name), maxFiles })
    : await chosenFiles(folder, manifest);
  return names.filter((name) => name !== MANIFEST_NAME);
}

async function chosenFiles(folder: string, manifest: PluginManifest): Promise<readonly string[]> {
  const main = mainFile(manifest);
  const documents = (await entriesOf(folder)).filter((entry) => entry.isFile() && DOCUMENTS.test(entry.name));
  return [...(main === undefined ? [] : [main.path]), ...documents.map(({ name }) => name)];
}

/** Puts the digest of the file that runs into a manifest, whose other content stays as it is. */
function withDigest(
  file: PackageFile,
  { manifest, files }: { readonly manifest: PluginManifest; readonly files: readonly PackageFile[] },
): PackageFile {
  const main = mainFile(manifest);
  const bytes = files.find(({ path }) => path === main?.path)?.bytes;
  if (bytes === undefined) return file;
  // The manifest was just parsed from this text
  const document = JSON.parse(new TextDecoder().decode(file.bytes)) as Record<string, Record<string, unknown>>;
  const section = document[manifest.kind];
  if (section === undefined || section["sha256"] === sha256Of(bytes)) return file;
  const filled = { ...document, [manifest.kind]: { ...section, sha256: sha256Of(bytes) } };
  return { ...file, bytes: new TextEncoder().encode(`${JSON.stringify(filled, null, 2)}\n`) };
}

/** @throws {ExtensionError} a folder that cannot be listed, or has too many entries */
async function entriesOf(folder: string): Promise<readonly Dirent[]> {
  const entries = await listPlainFolder(folder, MAX_ENTRIES).catch((cause: NodeJS.ErrnoException) => {
    throw wrong(`"${folder}" cannot be listed: ${cause.code ?? cause.message}`);
  });
  if (entries.length > MAX_ENTRIES) throw wrong(`"${folder}" has over ${MAX_ENTRIES} entries`);
  return entries;
}

/** Lists the plain files below a folder. @throws {ExtensionError} a link, a device, or too many files */
async function listFiles(
  folder: string,
  { isWanted, maxFiles }: { readonly isWanted: (name: string) => boolean; readonly maxFiles: number },
): Promise<readonly string[]> {
  const found: string[] = [];
  const open = [""];
  for (let place = open.pop(); place !== undefined; place = open.pop()) {
    for (const entry of await entriesOf(join(folder, place))) {
      if (!isWanted(entry.name)) continue;
      const path = place === "" ? entry.name : `${place}/${entry.name}`;
      if (entry.isDirectory()) open.push(path);
      else if (entry.isFile()) found.push(path);
      else throw wrong(`"${path}" in "${folder}" is a link or a device`);
      if (found.length + open.length > maxFiles) throw wrong(`"${folder}" has over ${maxFiles} files`);
    }
  }
  return found;
}

/**
 * Returns the path of a folder without links, which it may not be itself.
 * @param isFound true: the folder that it lies in may be none either. Default false
 * @throws {ExtensionError}
 */
export async function realPlaceOf(folder: string, isFound = false): Promise<string> {
  await requireRealFolder(folder);
  const above = dirname(folder);
  return isFound
    ? join(await realpath(dirname(above)), basename(above), basename(folder))
    : join(await realpath(above), basename(folder));
}

async function requireRealFolder(folder: string): Promise<void> {
  const info = await lstat(folder).catch(() => undefined);
  if (info === undefined) throw wrong(`there is no folder "${folder}"`);
  if (info.isSymbolicLink()) throw wrong(`"${folder}" is a link`);
  if (!info.isDirectory()) throw wrong(`"${folder}" is no folder`);
}

/** Reads a file of a folder. */
async function readPart(
  folder: string,
  { path, maxBytes }: { readonly path: string; readonly maxBytes: number },
): Promise<PackageFile> {
  await requireNoLinks(folder, path);
  const file = `"${path}" in "${folder}"`;
  const read = await readPlainFile(join(folder, path), maxBytes).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === "ENOENT" && path !== MANIFEST_NAME) throw wrong(`${file} is not there: build it first`);
    throw wrong(`${file} cannot be read: ${cause.code === "ELOOP" ? "it is a link" : cause.message}`);
  });
  switch (read) {
    case "no_file":
      throw wrong(`${file} is no plain file`);
    case "too_large":
      throw wrong(`${file} makes it larger than ${maxBytes} bytes`);
    case "grew":
      throw wrong(`${file} changed while it was read`);
    default:
      return { path, ...read };
  }
}

/** Refuses a path whose folders are links. */
async function requireNoLinks(folder: string, path: string): Promise<void> {
  for (let at = path.indexOf("/"); at !== -1; at = path.indexOf("/", at + 1)) {
    await requireRealFolder(join(folder, path.slice(0, at)));
  }
}

async function isWhole(folder: string, digest: string): Promise<boolean> {
  return await readFiles(folder).then((files) => toPackage(files).digest === digest).catch(() => false);
}

/** Says that a module is another than the manifest names, where it is. */
function tellChanged({ manifest, files }: PluginPackage, tell: ((reason: string) => void) | undefined): void {
  const main = mainFile(manifest);
  const found = sha256Of(files.find(({ path }) => path === main?.path)?.bytes ?? new Uint8Array());
  if (main === undefined || found === main.sha256) return;
  tell?.(`"${main.path}" has the SHA-256 ${found}, and ${MANIFEST_NAME} says ${main.sha256}`);
}

/** Reads every file of a written package. */
async function readFiles(place: string): Promise<readonly PackageFile[]> {
  const folder = await realPlaceOf(place);
  const files: PackageFile[] = [];
  let left = MAX_PACKAGE_BYTES;
  for (const path of await listFiles(folder, { isWanted: () => true, maxFiles: MAX_PACKAGE_FILES })) {
    const file = await readPart(folder, { path, maxBytes: left });
    left -= file.bytes.length;
    files.push(file);
  }
  return files;
}

function wrong(reason: string): ExtensionError {
  return new ExtensionError("package_invalid", `Cannot use the plugin: ${reason}`);
}

function changed(digest: string, reason: string, cause?: unknown): ExtensionError {
  const message = `Cannot run the plugin with the digest ${digest}: ${reason}; install or enable it again`;
  return new ExtensionError("plugin_changed", message, { cause });
}
