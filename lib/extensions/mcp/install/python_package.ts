import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import type { InstallerPrograms } from "./installer_program.ts";
import type { PackageProgram } from "./installed_package.ts";
import { listNames } from "./npm_package.ts";
import { McpInstallError, pythonName } from "./package_spec.ts";

/** Package of PyPI that is to be installed. */
export interface PythonRequest {
  readonly name: string;
  /** Exact version. Undefined: the newest release */
  readonly version: string | undefined;
  /** Program of the package, where it has more than one */
  readonly program: string | undefined;
}

/** Folder of the installation and the programs that fill it. */
interface PythonPlace {
  readonly folder: string;
  readonly programs: InstallerPrograms;
}

/** Package of a resolved list, with the digests of the files that may be installed for it. */
interface ResolvedPackage {
  readonly name: string;
  readonly version: string;
  readonly sha256: readonly string[];
}

const REQUIREMENTS = "requirements.txt";
/** A dash keeps Python from finding the file as a module. */
const START = "postern-start.py";
const MAX_PACKAGES = 2000;
/** Characters of a name, and of an exact version */
const WORD = /^[A-Za-z0-9.!+_-]+$/;
const MAX_WORD = 214;
/** The Python of the machine is used, and none is fetched. Settings of a project that lies around the folder do not count. */
const UV = { UV_PYTHON_DOWNLOADS: "never", UV_NO_CONFIG: "1" };

/**
 * Installs a package of PyPI into a virtual environment in an empty folder: with `uv` where the machine has it, else with `pip`. The whole
 * list of packages is resolved to exact versions with SHA-256 digests first, then exactly those files are installed. Wheels alone are
 * taken, because building a package runs its code. The list stays in the folder.
 * @throws {McpInstallError} `installer_missing`, `package_refused`, `package_tampered`, `package_not_found`, `installer_failed`
 */
export async function installFromPypi(request: PythonRequest, place: PythonPlace): Promise<PackageProgram> {
  const uv = await place.programs.find("uv");
  const packages = uv === undefined ? await installWithPip(request, place) : await installWithUv(uv, request, place);
  const own = packages.find(({ name }) => pythonName(name) === pythonName(request.name));
  const [sha256] = own?.sha256 ?? [];
  if (own === undefined || sha256 === undefined) throw refuse(request.name, "the installer did not resolve it");
  if (request.version !== undefined && own.version !== request.version) {
    const reason = `the registry has ${own.version} in place of ${request.version}`;
    throw new McpInstallError("package_tampered", `Cannot install "${request.name}": ${reason}`);
  }
  await writeStart(request, own, place.folder);
  return {
    ...{ registry: "pypi", name: own.name, version: own.version, integrity: `sha256:${sha256}` },
    command: { path: join("venv", "bin", "python"), inside: true },
    args: [START],
    notes: [`${packages.length} ${packages.length === 1 ? "package" : "packages"} installed`],
  };
}

async function installWithUv(
  uv: string,
  { name, version }: PythonRequest,
  { folder, programs }: PythonPlace,
): Promise<readonly ResolvedPackage[]> {
  const call = (args: readonly string[]) =>
    programs.run({ title: `install "${name}"`, file: uv, args: [...args, "--no-progress"], cwd: folder, env: UV });
  await call(["venv", "--no-project", "venv"]);
  const python = join(folder, "venv", "bin", "python");
  const wanted = join(folder, "wanted.in");
  await writeFile(wanted, `${requirement(name, version)}\n`);
  const compile = ["pip", "compile", "--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate"];
  const text = await call([...compile, "--python", python, wanted]).catch((error: unknown) => {
    throw explain(name, version, error);
  });
  const packages = readRequirements(text, name);
  await writeFile(join(folder, REQUIREMENTS), writeRequirements(packages));
  const install = ["pip", "install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--compile-bytecode"];
  await call([...install, "--link-mode", "copy", "--python", python, "--requirements", REQUIREMENTS]);
  return packages;
}

async function installWithPip(
  { name, version: wanted }: PythonRequest,
  { folder, programs }: PythonPlace,
): Promise<readonly ResolvedPackage[]> {
  const python = await programs.find("python3");
  if (python === undefined) {
    const reason = "it is a package of PyPI, and this machine has neither uv nor python3";
    throw new McpInstallError("installer_missing", `Cannot install "${name}": ${reason}; install uv`);
  }
  const title = `install "${name}"`;
  const version = await programs.run({ title, file: python, args: ["-I", "-m", "pip", "--version"], cwd: folder })
    .catch(
      (error: unknown) => {
        if (error instanceof McpInstallError) return "";
        throw error;
      },
    );
  // An environment without a pip of its own takes a tenth of the time
  const hasPip = canFillOthers(version);
  const make = ["-I", "-m", "venv", ...hasPip ? ["--without-pip"] : [], "venv"];
  await programs.run({ title, file: python, args: make, cwd: folder }).catch((error: unknown) => {
    if (!(error instanceof McpInstallError)) throw error;
    const reason = "python3 could not make a virtual environment";
    const message = `Cannot install "${name}": ${reason}; install uv, or the venv module of Python (python3-venv)`;
    throw new McpInstallError("installer_missing", message, { cause: error });
  });
  const inside = join(folder, "venv", "bin", "python");
  const pip = hasPip ? [python, "-I", "-m", "pip", "--python", inside] : [inside, "-m", "pip"];
  const [file = python, ...first] = pip;
  const flags = ["--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "--progress-bar", "off"];
  const call = (args: readonly string[]) =>
    programs.run({ title, file, args: [...first, "install", ...flags, ...args], cwd: folder });
  const resolve = ["--quiet", "--dry-run", "--ignore-installed", "--report", "report.json"];
  await call([...resolve, requirement(name, wanted)]).catch((error: unknown) => {
    throw explain(name, wanted, error);
  });
  const packages = readReport(await readFile(join(folder, "report.json"), "utf8"), name);
  await writeFile(join(folder, REQUIREMENTS), writeRequirements(packages));
  await call(["--quiet", "--require-hashes", "--no-deps", "--requirement", REQUIREMENTS]);
  return packages;
}

/** Tells whether a pip can install into other environments, which it can from 22.3 on. @param said by `pip --version` */
function canFillOthers(said: string): boolean {
  const [, major = "0", minor = "0"] = /^pip (\d+)\.(\d+)/.exec(said) ?? [];
  return Number(major) > 22 || (Number(major) === 22 && Number(minor) >= 3);
}

function requirement(name: string, version: string | undefined): string {
  return version === undefined ? name : `${name}==${version}`;
}

/** Source: pip "Installation Report", version 1 */
const reportSchema = v.object({
  version: v.literal("1"),
  install: v.pipe(
    v.array(v.object({
      metadata: v.object({ name: v.string(), version: v.string() }),
      download_info: v.object({ archive_info: v.object({ hashes: v.object({ sha256: v.string() }) }) }),
    })),
    v.maxLength(MAX_PACKAGES),
  ),
});

function readReport(text: string, name: string): readonly ResolvedPackage[] {
  try {
    const { install } = v.parse(reportSchema, JSON.parse(text));
    return install.map(({ metadata, download_info: { archive_info: { hashes } } }) => ({
      // Attack: a package says its name and version itself, and each becomes a part of a line of requirements
      ...{ name: requireWord(metadata.name, name), version: requireWord(metadata.version, name) },
      sha256: [requireDigest(hashes.sha256, name)],
    }));
  } catch (cause) {
    if (cause instanceof McpInstallError) throw cause;
    throw refuse(name, "the index gives no SHA-256 digest of each file, or pip is older than 22.2; install uv");
  }
}

/** Reads what `uv pip compile --generate-hashes` prints: `name==version \` and a line for each digest. */
function readRequirements(text: string, name: string): readonly ResolvedPackage[] {
  const joined = text.replace(/\\\r?\n/g, " ").split("\n").map((line) => line.trim()).filter((line) =>
    line !== "" && !line.startsWith("#")
  );
  if (joined.length > MAX_PACKAGES) throw refuse(name, `it needs more than ${MAX_PACKAGES} packages`);
  return joined.map((line) => {
    const [, found, version] = /^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)(?:\s|;|$)/.exec(line) ?? [];
    const sha256 = [...line.matchAll(/--hash=sha256:([0-9a-f]{64})\b/g)].map(([, digest = ""]) => digest);
    if (found !== undefined && version !== undefined && sha256.length > 0) return { name: found, version, sha256 };
    const reason = `it needs ${
      JSON.stringify(line.slice(0, 80))
    }, which has no exact version with a digest in the index`;
    throw refuse(name, reason);
  });
}

function requireWord(text: string, name: string): string {
  if (WORD.test(text) && text.length <= MAX_WORD) return text;
  throw refuse(name, `a package calls itself ${JSON.stringify(text.slice(0, 80))}, which is no name or version`);
}

function requireDigest(digest: string, name: string): string {
  if (/^[0-9a-f]{64}$/.test(digest)) return digest;
  throw refuse(name, "the index gives a digest that is no SHA-256");
}

function writeRequirements(packages: readonly ResolvedPackage[]): string {
  const lines = packages.map(({ name, version, sha256 }) =>
    [`${name}==${version}`, ...sha256.map((digest) => `--hash=sha256:${digest}`)].join(" ")
  );
  return `${lines.sort().join("\n")}\n`;
}

/** Writes the file that starts the program: a program of a virtual environment itself names the folder that it was made in. */
async function writeStart(
  { name, program }: PythonRequest,
  own: ResolvedPackage,
  folder: string,
): Promise<void> {
  const scripts = await readScripts(own, folder);
  const names = [...scripts.keys()];
  const wanted = program ?? (names.length === 1 ? names[0] : names.find((one) => pythonName(one) === pythonName(name)));
  const entry = wanted === undefined ? undefined : scripts.get(wanted);
  if (entry === undefined) {
    const has = names.length === 0
      ? "it has no program, and cannot be started as a server"
      : `its programs are ${listNames(names)}; choose one with --program`;
    throw refuse(name, has);
  }
  const [top] = entry.path.split(".");
  const lines = ["import sys", `from ${entry.module} import ${top}`, `sys.exit(${entry.path}())`];
  await writeFile(join(folder, START), `${lines.join("\n")}\n`);
}

interface ScriptEntry {
  readonly module: string;
  readonly path: string;
}

/** Returns the programs that the installed package declares. Source: Python Packaging User Guide, "Entry points specification" */
async function readScripts(own: ResolvedPackage, folder: string): Promise<ReadonlyMap<string, ScriptEntry>> {
  const lib = join(folder, "venv", "lib");
  const versions = (await readdir(lib)).filter((name) => name.startsWith("python"));
  const scripts = new Map<string, ScriptEntry>();
  for (const version of versions) {
    const site = join(lib, version, "site-packages");
    const info = (await readdir(site)).find((name) =>
      name.endsWith(".dist-info") && pythonName(name.replace(/-[^-]*\.dist-info$/, "")) === pythonName(own.name)
    );
    const text = info === undefined ? "" : await readFile(join(site, info, "entry_points.txt"), "utf8").catch(() => "");
    let section = "";
    for (const line of text.split(/\r?\n/)) {
      section = /^\s*\[(.*)\]\s*$/.exec(line)?.[1] ?? section;
      const [, script, module, path] = /^\s*([\w.-]+)\s*=\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?$/.exec(line) ?? [];
      if (section !== "console_scripts" || script === undefined || module === undefined || path === undefined) continue;
      scripts.set(script, { module, path });
    }
  }
  return scripts;
}

function explain(name: string, version: string | undefined, error: unknown): unknown {
  if (!(error instanceof McpInstallError) || error.code !== "installer_failed") return error;
  const { message } = error;
  if (
    !/No matching distribution|no usable wheels|no wheels|not found in the package registry|no versions? of/i.test(
      message,
    )
  ) {
    return error;
  }
  const wanted = version === undefined ? "a release" : `version ${version}`;
  const reason = `the registry has no wheel of ${wanted} for this machine, of it or of what it needs`;
  const way = "a package without a wheel would run its own code to be built";
  return new McpInstallError("package_not_found", `Cannot install "${name}": ${reason}; ${way} (${message})`, {
    cause: error,
  });
}

function refuse(name: string, reason: string): McpInstallError {
  return new McpInstallError("package_refused", `Cannot install "${name}": ${reason}`);
}
