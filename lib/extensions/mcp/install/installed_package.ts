import { createHash, hash } from "node:crypto";
import { createReadStream } from "node:fs";
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import * as v from "valibot";
import type { Clock } from "../../../base/clock.ts";
import { createTemporaryNames, syncFolder } from "../../../base/durable_files.ts";
import type { Random } from "../../../base/random.ts";
import { isInFolder } from "./installer_program.ts";
import { McpInstallError, type PackageRegistry } from "./package_spec.ts";

/** Program of a package, as it is started. Paths inside of the package are relative to its folder. */
export interface PackageProgram {
  readonly registry: PackageRegistry;
  readonly name: string;
  readonly version: string;
  /** Digest of the package as the registry names it: `sha512-...` of npm, `sha256:...` of PyPI */
  readonly integrity: string;
  /** Absolute path, or a path in the folder */
  readonly command: { readonly path: string; readonly inside: boolean };
  /** Paths in the folder that come before the person's own arguments */
  readonly args: readonly string[];
  /** Facts that the person should know, each as a sentence */
  readonly notes: readonly string[];
}

/** Package that is installed, ready to be entered into the configuration. */
export interface InstalledPackage {
  readonly registry: PackageRegistry;
  readonly name: string;
  readonly version: string;
  readonly integrity: string;
  /** Absolute path of its folder */
  readonly folder: string;
  /** Absolute path of the program */
  readonly command: string;
  readonly args: readonly string[];
  /** Entries of `paths` with which it runs in a sandbox: the package itself, and what it is run by */
  readonly paths: readonly string[];
  readonly notes: readonly string[];
}

/** Installed package with its content, as it was when it was installed. */
const recordSchema = v.object({
  version: v.literal(1),
  registry: v.picklist(["npm", "pypi"]),
  name: v.string(),
  package_version: v.string(),
  integrity: v.string(),
  command: v.object({ path: v.string(), inside: v.boolean() }),
  args: v.array(v.string()),
  notes: v.array(v.string()),
  /** SHA-256 over all files, hexadecimal */
  digest: v.string(),
  /** ISO 8601 */
  installed_at: v.string(),
});

/** File in the folder of each package that is written last: a folder without it is no installed package. */
const RECORD = "install.json";
const MAX_RECORD_BYTES = 65_536;
const MAX_FILES = 200_000;
const MAX_BYTES = 2 * 2 ** 30;
/** Files up to this are read whole, which takes less time */
const WHOLE_BYTES = 1_048_576;

/** Folder of the installed packages in the data directory. */
export function packagesFolder(dataDir: string): string {
  return join(dataDir, "mcp", "packages");
}

/** Place, clock and randomness of an installation. */
export interface InstallPlace {
  readonly dataDir: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Bytes that a package may have with all that it needs. Default: MAX_BYTES */
  readonly maxBytes?: number;
}

/**
 * Installs into a temporary folder beside its place and renames it there when everything is written: a kill in the middle leaves
 * nothing that counts, and the next installation removes what it left. A package that is installed already, unchanged, stays as it is.
 * @param install fills the folder and says how its program is started
 */
export async function installPackage(
  { dataDir, clock, random, maxBytes = MAX_BYTES }: InstallPlace,
  install: (folder: string) => Promise<PackageProgram>,
): Promise<InstalledPackage> {
  const root = packagesFolder(dataDir);
  await mkdir(root, { recursive: true, mode: 0o700 });
  await removeLeftovers(root, { clock, random });
  const staged = join(root, createTemporaryNames({ clock, random }).next());
  await mkdir(staged, { mode: 0o700 });
  try {
    const program = await install(staged);
    await settle(staged, { title: program.name, maxBytes });
    const target = join(root, packageFolderName(program));
    const known = await readInstalledPackage(target);
    const isSame = known?.program.integrity === program.integrity;
    if (known !== undefined && isSame && await digestFolder(target) === known.digest) {
      return await toInstalled(known.program, target);
    }
    const digest = await digestFolder(staged);
    await writeRecord(staged, { program, digest, installedAt: new Date(clock.now()).toISOString() });
    await syncFolder(staged);
    // The place of a folder that was changed, or that has no record
    const old = join(root, createTemporaryNames({ clock, random }).next());
    if (await exists(target)) await rename(target, old);
    await rename(staged, target);
    await syncFolder(root);
    await rm(old, { recursive: true, force: true });
    return await toInstalled(program, target);
  } finally {
    await rm(staged, { recursive: true, force: true });
  }
}

/** Returns the folder of an installed package that one of the words of a command line lies in. Undefined where none does. */
export function packageFolderOf(dataDir: string, words: readonly string[]): string | undefined {
  const root = packagesFolder(dataDir);
  const word = words.find((text) => resolve(text) !== root && isInFolder(text, root));
  if (word === undefined) return undefined;
  let folder = resolve(word);
  while (dirname(folder) !== root) folder = dirname(folder);
  return folder;
}

/** Removes the folder of a package. */
export async function removePackage(dataDir: string, folder: string): Promise<void> {
  if (dirname(folder) !== packagesFolder(dataDir)) return;
  await rm(folder, { recursive: true, force: true, maxRetries: 3 });
}

/** Returns the name of a package's folder. */
export function packageFolderName(
  { registry, name, version }: Pick<PackageProgram, "registry" | "name" | "version">,
): string {
  return `${registry}-${name.replace("@", "").replace("/", "+")}-${version}`.replace(/[^a-zA-Z0-9._+-]/g, "_");
}

async function toInstalled(program: PackageProgram, folder: string): Promise<InstalledPackage> {
  const { registry, name, version, integrity, command, args, notes } = program;
  const path = command.inside ? join(folder, command.path) : command.path;
  return {
    ...{ registry, name, version, integrity, folder, notes },
    command: path,
    args: args.map((inner) => join(folder, inner)),
    paths: [`${folder}:ro`, ...await runtimePaths(path, folder)],
  };
}

/** Returns the folder of the runtime that a program leads to, where it is none of the system's, which every sandbox shows. */
async function runtimePaths(command: string, folder: string): Promise<readonly string[]> {
  const real = await realpath(command).catch(() => command);
  if (isInFolder(real, "/usr") || isInFolder(real, folder)) return [];
  return [`${dirname(dirname(real))}:ro`];
}

async function writeRecord(
  folder: string,
  { program, digest, installedAt }: {
    readonly program: PackageProgram;
    readonly digest: string;
    readonly installedAt: string;
  },
): Promise<void> {
  const { version, ...rest } = program;
  const record = { version: 1, ...rest, package_version: version, digest, installed_at: installedAt };
  await writeFile(join(folder, RECORD), `${JSON.stringify(record, null, 2)}\n`, { mode: 0o600, flush: true });
}

/** Reads the record of an installed package. Undefined for a folder without one, or with one that no version wrote. */
export async function readInstalledPackage(
  folder: string,
): Promise<{ readonly program: PackageProgram; readonly digest: string } | undefined> {
  const path = join(folder, RECORD);
  const size = await stat(path).then((info) => info.size, () => Infinity);
  if (size > MAX_RECORD_BYTES) return undefined;
  try {
    const { digest, package_version: version, registry, name, integrity, command, args, notes } = v.parse(
      recordSchema,
      JSON.parse(await readFile(path, "utf8")),
    );
    return { program: { registry, name, version, integrity, command, args, notes }, digest };
  } catch {
    return undefined;
  }
}

/** Entry of a folder: its path in it, and what lies there. */
type FolderEntry = readonly [path: string, info: Awaited<ReturnType<typeof lstat>>];

/** Lists a folder with all below it, but its record. @throws {McpInstallError} `package_refused` beyond MAX_FILES */
async function* entriesOf(folder: string, title: string): AsyncGenerator<FolderEntry> {
  const left = [""];
  let files = 0;
  for (let path = left.pop(); path !== undefined; path = left.pop()) {
    const names = (await readdir(join(folder, path))).sort();
    for (const name of names) {
      const inner = join(path, name);
      if (inner === RECORD) continue;
      if (++files > MAX_FILES) throw refuse(title, `it has more than ${MAX_FILES} files`);
      const info = await lstat(join(folder, inner));
      yield [inner, info];
      if (info.isDirectory()) left.push(inner);
    }
  }
}

/**
 * Takes from what an installer has unpacked that which no package needs: npm keeps the bits by which a program runs with the rights of its owner.
 * @throws {McpInstallError} `package_refused`
 */
async function settle(
  folder: string,
  { title, maxBytes }: { readonly title: string; readonly maxBytes: number },
): Promise<void> {
  let bytes = 0;
  for await (const [path, info] of entriesOf(folder, title)) {
    const mode = Number(info.mode);
    if (info.isSymbolicLink()) continue;
    if (!info.isFile() && !info.isDirectory()) throw refuse(title, `${JSON.stringify(path)} is no file`);
    if (info.isFile()) bytes += Number(info.size);
    if (bytes > maxBytes) throw refuse(title, `it has more than ${maxBytes} bytes with all that it needs`);
    if ((mode & 0o7000) !== 0) await chmod(join(folder, path), mode & 0o777);
  }
}

/** Returns the SHA-256 over paths, kinds and contents of a folder without its record. */
async function digestFolder(folder: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const [path, info] of entriesOf(folder, basename(folder))) {
    const place = join(folder, path);
    if (info.isSymbolicLink()) hash.update(`link\0${path}\0${await readlink(place)}\0`);
    else if (info.isFile()) {
      hash.update(`file\0${path}\0${Number(info.mode) & 0o7111}\0${await digestFile(place, Number(info.size))}\0`);
    } else if (!info.isDirectory()) hash.update(`other\0${path}\0`);
  }
  return hash.digest("hex");
}

async function digestFile(path: string, size: number): Promise<string> {
  if (size <= WHOLE_BYTES) return hash("sha256", await readFile(path));
  const whole = createHash("sha256");
  for await (const chunk of createReadStream(path)) whole.update(chunk);
  return whole.digest("hex");
}

function refuse(title: string, reason: string): McpInstallError {
  return new McpInstallError("package_refused", `Cannot use "${title}": ${reason}`);
}

async function removeLeftovers(root: string, services: Pick<InstallPlace, "clock" | "random">): Promise<void> {
  const names = createTemporaryNames(services);
  for (const name of await readdir(root)) {
    const modifiedMs = await stat(join(root, name)).then((info) => info.mtimeMs, () => Infinity);
    if (names.isLeftover(name, modifiedMs)) await rm(join(root, name), { recursive: true, force: true });
  }
}

function exists(path: string): Promise<boolean> {
  return lstat(path).then(() => true, () => false);
}
