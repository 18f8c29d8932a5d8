import { createHash } from "node:crypto";
import { lstat, realpath } from "node:fs/promises";
import { isAbsolute, join, relative, resolve, sep } from "node:path";
import { ToolError } from "../../../base/errors.ts";
import type { Files, FileScope, OpenFile } from "../../../system/files/files.ts";
import { shown } from "../../../system/files/parse_path.ts";
import { readShared } from "../../../system/files/read_shared.ts";
import type { ModuleScope } from "../../../tools/wasm/wasm_modules.ts";

/** Content of a module's file. */
export interface ReadModule {
  /** Path relative to the folder */
  readonly path: string;
  /** Real path of the folder, and the path */
  readonly place: string;
  readonly bytes: SharedArrayBuffer;
  readonly sha256: string;
  /** SHA-256 that a file beside it wants, such as `words.wasm.sha256`. undefined: there is no such file */
  readonly wanted: string | undefined;
}

/** Module that was found in the folder. */
export interface FoundModule {
  /** Path relative to the folder, with `/` */
  readonly path: string;
  /** Real path of the folder, and the path */
  readonly place: string;
  readonly bytes: number;
}

/** Modules of one list, and files looked at for it */
const MAX_LISTED = 200;
const MAX_ENTRIES = 5000;
const MAX_DIGEST_FILE = 1024;

/**
 * Lists the modules of `[runtime.wasm] tools_dir`, sorted by path, without those that could not be opened.
 * @throws {ToolError} `tools_dir_refused`; {CancelError} when the signal aborts
 */
export async function listToolModules(
  scope: ModuleScope,
  files: Files,
): Promise<{ readonly modules: readonly FoundModule[]; readonly truncated: boolean }> {
  const root = await toolsDir(scope);
  if (root === undefined) return { modules: [], truncated: false };
  const bounds = { respectGitignore: false, maxEntries: MAX_ENTRIES, signal: scope.signal };
  const walk = files.walk(".", fileScope(root, scope), bounds);
  const modules: FoundModule[] = [];
  for (let step = await walk.next();; step = await walk.next()) {
    if (step.done === true) return { modules: sorted(modules), truncated: step.value.truncated };
    for (const { path, open } of step.value) {
      if (!path.endsWith(".wasm")) continue;
      if (modules.length === MAX_LISTED) {
        await walk.return({ truncated: true });
        return { modules: sorted(modules), truncated: true };
      }
      const bytes = await sizeOf(open);
      if (bytes !== undefined) modules.push({ path, place: join(root, path), bytes });
    }
  }
}

/**
 * Reads a module of `[runtime.wasm] tools_dir` by the rules of `[runtime.wasm.security]`.
 * @param given path relative to the folder; its ending `.wasm` may be left out
 * @throws {ToolError} `tools_dir_refused`, `module_link`, `module_too_large`, and as Files.open; {CancelError} when the signal aborts
 */
export async function readToolModule(given: string, scope: ModuleScope, files: Files): Promise<ReadModule> {
  const path = given.endsWith(".wasm") ? given : `${given}.wasm`;
  const root = await toolsDir(scope);
  const { tools_dir: folder, security, max_module_size_mb: maxMb } = scope.config.runtime.wasm;
  if (root === undefined) {
    throw new ToolError("not_found", `Cannot open ${shown(path)}: [runtime.wasm] tools_dir "${folder}" is no folder`);
  }
  if (security.reject_symlink_modules) await refuseLinks(path, root);
  const inside = fileScope(root, scope);
  const hash = createHash("sha256");
  const bytes = await withFile(files, { path, scope: inside }, async (file) => {
    if (file.size <= maxMb * 1_048_576) {
      return await readShared(file, {
        path,
        signal: scope.signal,
        onPart: (part) => void hash.update(part),
      });
    }
    const why = `it has ${file.size} bytes, and [runtime.wasm] max_module_size_mb is ${maxMb}`;
    throw new ToolError("module_too_large", `Cannot read ${shown(path)}: ${why}`);
  });
  const sha256 = hash.digest("hex");
  const wanted = await wantedDigest(files, { path: `${path}.sha256`, scope: inside, signal: scope.signal });
  return { path, place: join(root, path), bytes, sha256, wanted };
}

/** Returns the size of a module; undefined for one that cannot be opened, such as a hard link. */
async function sizeOf(open: () => Promise<OpenFile>): Promise<number | undefined> {
  try {
    const file = await open();
    await file.close();
    return file.size;
  } catch (error) {
    if (error instanceof ToolError) return undefined;
    throw error;
  }
}

/**
 * Returns the real path of the folder of the modules; undefined where there is none.
 * @throws {ToolError} `tools_dir_refused` for one that `[runtime.wasm.security]` refuses
 */
async function toolsDir({ config, workspaceRoot }: ModuleScope): Promise<string | undefined> {
  const { tools_dir: folder, security } = config.runtime.wasm;
  const refuse = (reason: string, key: string) =>
    new ToolError(
      "tools_dir_refused",
      `Cannot use [runtime.wasm] tools_dir "${folder}": ${reason}; [runtime.wasm.security] ${key} = false allows it`,
    );
  const workspace = await realpath(workspaceRoot);
  const path = resolve(workspace, folder);
  if (security.require_workspace_relative_tools_dir && (isAbsolute(folder) || !isInside(workspace, path))) {
    throw refuse("it is not relative to the workspace, or leads out of it", "require_workspace_relative_tools_dir");
  }
  const real = await realpath(path).catch(() => undefined);
  if (real === undefined) return undefined;
  if (security.reject_symlink_tools_dir && real !== path) {
    throw refuse("it is a link, or lies in one", "reject_symlink_tools_dir");
  }
  if (security.require_workspace_relative_tools_dir && !isInside(workspace, real)) {
    throw refuse("its link leads out of the workspace", "require_workspace_relative_tools_dir");
  }
  return (await lstat(real)).isDirectory() ? real : undefined;
}

function isInside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

/** Refuses a path with a link in it. The path is checked again when it is opened, so that no link leads out of the folder. */
async function refuseLinks(path: string, root: string): Promise<void> {
  let place = root;
  for (const name of path.split("/")) {
    place = join(place, name);
    const info = await lstat(place).catch(() => undefined);
    if (info?.isSymbolicLink() !== true) continue;
    const key = "[runtime.wasm.security] reject_symlink_modules = false allows it";
    throw new ToolError("module_link", `Cannot open ${shown(path)}: it is a link, or lies in one; ${key}`);
  }
}

function fileScope(root: string, { workspaceRoot, config }: ModuleScope): FileScope {
  return { workspaceRoot, allowedRoot: root, forbiddenPaths: config.autonomy.forbidden_paths, allowSensitive: false };
}

/** Reads the SHA-256 that a file beside a module wants, as `sha256sum` writes it. */
async function wantedDigest(
  files: Files,
  { path, scope, signal }: { readonly path: string; readonly scope: FileScope; readonly signal: AbortSignal },
): Promise<string | undefined> {
  try {
    return await withFile(files, { path, scope }, async (file) => {
      const text = file.size > MAX_DIGEST_FILE
        ? ""
        : new TextDecoder().decode(new Uint8Array(await readShared(file, { path, signal })).slice());
      const found = /^\s*([0-9a-f]{64})\b/i.exec(text)?.[1]?.toLowerCase();
      if (found !== undefined) return found;
      throw new ToolError("module_changed", `Cannot use ${shown(path)}: it does not begin with a SHA-256`);
    });
  } catch (error) {
    if (error instanceof ToolError && error.code === "not_found") return undefined;
    throw error;
  }
}

async function withFile<T>(
  files: Files,
  { path, scope }: { readonly path: string; readonly scope: FileScope },
  use: (file: OpenFile) => Promise<T>,
): Promise<T> {
  const file = await files.open(path, scope);
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

const sorted = (modules: readonly FoundModule[]) => [...modules].sort((a, b) => (a.path < b.path ? -1 : 1));
