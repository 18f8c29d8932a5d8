import { readFile, realpath, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { listSome } from "../../../base/text.ts";
import { type InstallerPrograms, isInFolder } from "./installer_program.ts";
import type { PackageProgram } from "./installed_package.ts";
import { checkLockfile, type LockedPackage } from "./npm_lockfile.ts";
import { isExactVersion, McpInstallError } from "./package_spec.ts";

/** Package of npm that is to be installed. */
export interface NpmRequest {
  readonly name: string;
  /** Exact version or tag. Undefined: the newest release */
  readonly version: string | undefined;
  /** Program of the package, where it has more than one */
  readonly program: string | undefined;
}

/** Flags of every call: whatever the person's own settings of npm say, no script runs, and packages lie in this folder. */
const FLAGS: readonly string[] = [
  "--ignore-scripts",
  "--no-audit",
  "--no-fund",
  "--no-update-notifier",
  "--no-global",
  "--no-workspaces",
  "--no-dry-run",
  "--no-omit-lockfile-registry-resolved",
  "--package-lock",
  "--save",
  "--location=project",
  "--install-strategy=hoisted",
  "--lockfile-version=3",
  "--omit=dev",
  "--loglevel=error",
  // Wrong bytes are asked for again as well, six times in all: for minutes where the waits are left to npm
  "--fetch-retries=2",
  "--fetch-retry-mintimeout=100",
  "--fetch-retry-maxtimeout=300",
  // A package from git would run git with settings of its own
  "--git=/nonexistent",
];
const MAX_NAMED = 5;
const MAX_SHOWN = 64;

/**
 * Installs a package of npm into an empty folder with the machine's own `npm`: first the lockfile alone, which is checked, then exactly
 * the bytes that it names. No script of any package runs. The lockfile stays in the folder.
 * @throws {McpInstallError} `installer_missing`, `package_refused`, `package_tampered`, `package_not_found`, `installer_failed`
 */
export async function installFromNpm(
  { name, version = "latest", program }: NpmRequest,
  { folder, programs }: { readonly folder: string; readonly programs: InstallerPrograms },
): Promise<PackageProgram> {
  const npm = await programs.find("npm");
  if (npm === undefined) {
    const reason = "it is a package of npm, and this machine has no npm";
    throw new McpInstallError("installer_missing", `Cannot install "${name}": ${reason}; install Node.js with npm`);
  }
  const call = (args: readonly string[]) =>
    programs.run({ title: `install "${name}"`, file: npm, args: [...args, ...FLAGS], cwd: folder });
  await writeFile(join(folder, "package.json"), `${JSON.stringify({ private: true })}\n`);
  await call(["install", "--package-lock-only", "--save-exact", `${name}@${version}`]).catch((error: unknown) => {
    throw notFound(name, version, error);
  });
  const locked = checkLockfile(await readFile(join(folder, "package-lock.json"), "utf8"), name);
  if (isExactVersion(version) && locked.version !== version) {
    const reason = `the registry has ${locked.version} in place of ${version}`;
    throw new McpInstallError("package_tampered", `Cannot install "${name}": ${reason}`);
  }
  await call(["ci"]);
  const path = await programPath({ name, program, folder }, locked);
  const node = await isForNode(join(folder, path)) ? await findNode(npm, { name, programs }) : undefined;
  const { version: exact, integrity, withScripts } = locked;
  return {
    ...{ registry: "npm", name, version: exact, integrity },
    command: node === undefined ? { path, inside: true } : { path: node, inside: false },
    args: node === undefined ? [] : [path],
    notes: [
      `${locked.count} ${locked.count === 1 ? "package" : "packages"} installed`,
      ...(withScripts.length === 0 ? [] : [notRun(withScripts)]),
    ],
  };
}

function notRun(names: readonly string[]): string {
  return `Install scripts were not run: ${listNames(names)} may not work without them`;
}

/** Lists names that a package gives: the first ones, each cut. */
export function listNames(names: readonly string[]): string {
  return listSome(names.map((name) => JSON.stringify(name.slice(0, MAX_SHOWN))), MAX_NAMED);
}

/** Returns the path of the program in the folder. @throws {McpInstallError} `package_refused` */
async function programPath(
  { name, program, folder }: { readonly name: string; readonly program: string | undefined; readonly folder: string },
  { programs }: LockedPackage,
): Promise<string> {
  const names = Object.keys(programs);
  const wanted = program ??
    (names.length === 1 ? names[0] : names.find((one) => one === name.replace(/^@[^/]*\//, "")));
  const file = wanted === undefined || !Object.hasOwn(programs, wanted) ? undefined : programs[wanted];
  if (file === undefined) {
    const has = names.length === 0
      ? "it has no program, and cannot be started as a server"
      : `its programs are ${listNames(names)}; choose one with --program`;
    throw new McpInstallError("package_refused", `Cannot install "${name}": ${has}`);
  }
  const own = join(folder, "node_modules", name);
  const path = join(own, file);
  const real = await realpath(path).catch(() => undefined);
  if (!isInFolder(path, own) || real === undefined || !isInFolder(real, await realpath(own))) {
    throw new McpInstallError("package_refused", `Cannot install "${name}": its program is not in its folder`);
  }
  return join("node_modules", name, file);
}

/** Tells whether a program is text for Node.js, by its first line or its name. */
async function isForNode(path: string): Promise<boolean> {
  const text = await readFile(path, "latin1");
  const [first = ""] = text.slice(0, 256).split("\n");
  return first.startsWith("#!") ? /\bnode\b/.test(first) : /\.[cm]?js$/.test(path);
}

/** Returns the Node.js that belongs to this npm. @throws {McpInstallError} `installer_missing` */
async function findNode(
  npm: string,
  { name, programs }: { readonly name: string; readonly programs: InstallerPrograms },
): Promise<string> {
  const beside = join(dirname(npm), "node");
  const found = await realpath(beside).then(() => beside, () => programs.find("node"));
  if (found !== undefined) return found;
  throw new McpInstallError("installer_missing", `Cannot install "${name}": this machine has npm and no node`);
}

function notFound(name: string, version: string, error: unknown): unknown {
  if (!(error instanceof McpInstallError) || !/\bE404\b|\bETARGET\b/.test(error.message)) return error;
  const reason = /ETARGET/.test(error.message) ? `it has no version "${version}"` : "the registry has no such package";
  return new McpInstallError("package_not_found", `Cannot install "${name}": ${reason}`, { cause: error });
}
