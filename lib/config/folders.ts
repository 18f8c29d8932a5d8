import { chmod, mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { ConfigError, messageOf } from "../base/errors.ts";
import type { SkillLayer } from "../base/records/extension_views.ts";

/** Environment and home folder of the user, which decide where Postern keeps its files. */
export interface UserPlace {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute path of the current folder */
  readonly cwd: string;
  /** Absolute path of the user's home folder */
  readonly home: string;
}

/** `path` made absolute against `base`; a leading `~/` is the home folder. */
export function resolvePath(path: string, base: string, home: string): string {
  if (path === "~") return home;
  return path.startsWith("~/") ? join(home, path.slice(2)) : resolve(base, path);
}

/** `$XDG_CONFIG_HOME/postern/postern.toml`; a relative variable is ignored (XDG Base Directory Specification). */
export function userConfigFile({ env, home }: UserPlace): string {
  return join(xdg(env["XDG_CONFIG_HOME"]) ?? join(home, ".config"), "postern", "postern.toml");
}

/** `$XDG_DATA_HOME/postern`. */
export function userDataDir({ env, home }: UserPlace): string {
  return join(xdg(env["XDG_DATA_HOME"]) ?? join(home, ".local", "share"), "postern");
}

/**
 * Makes the data directory, 0700, where it is missing. One that others can read is closed when it is empty or Postern's own;
 * any other is refused, since it may be a folder that others rely on.
 * @throws {ConfigError} `data_dir`
 */
export async function prepareDataDir(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    const { mode } = await stat(path);
    if ((mode & 0o077) === 0 || process.platform === "win32") return;
    const names = await readdir(path);
    if (isOwnDataDir(names)) return await chmod(path, 0o700);
  } catch (cause) {
    throw new ConfigError("data_dir", `Cannot use the data directory "${path}": ${messageOf(cause)}`, {
      cause,
    });
  }
  const reason = `others can read it; choose another with --data-dir, or close it with chmod 700 "${path}"`;
  throw new ConfigError("data_dir", `Cannot use the data directory "${path}": ${reason}`);
}

/** Makes a data directory and an empty workspace that go away together, for a gateway of a test. */
export async function makePassingFolders(): Promise<
  { readonly dataDir: string; readonly workspace: string; readonly remove: () => Promise<void> }
> {
  const folder = await mkdtemp(join(tmpdir(), "postern-test-"));
  const workspace = join(folder, "workspace");
  await mkdir(workspace);
  return { dataDir: join(folder, "data"), workspace, remove: () => rm(folder, { recursive: true, force: true }) };
}

/** Tells by its names whether a folder is empty or a data directory, of a gateway or of a command that changed a configuration alone. */
export function isOwnDataDir(names: readonly string[]): boolean {
  return names.length === 0 || ["gateway.lock", "configuration.lock"].some((lock) => names.includes(lock));
}

/** Absolute paths that decide where the extensions of a gateway lie. */
export interface ExtensionPlaces {
  readonly dataDir: string;
  /** Folder that the agent works in */
  readonly workspaceRoot: string;
  /** The user's home folder */
  readonly home: string;
}

/** Returns the folders that plugins are found in, by place. @param userDir `[plugins] user_dir` */
export function pluginFolders(userDir: string, { dataDir, workspaceRoot, home }: ExtensionPlaces) {
  return {
    user_dir: userDir === "" ? join(dataDir, "plugins") : resolvePath(userDir, dataDir, home),
    project: join(workspaceRoot, ".plugins"),
    workspace: join(workspaceRoot, "plugins"),
  } as const;
}

/** Folder that skills are looked for in. */
export interface SkillFolder {
  /** Absolute */
  readonly path: string;
  readonly layer: SkillLayer;
  /** Name of the folder for people */
  readonly shownAs: string;
}

/** Folders that other programs look for skills in too. */
const SHARED = [".agents/skills", ".claude/skills"];

/**
 * Returns the folders of skills, the first to count first: those of `[skills] dirs`, `{data_dir}/skills`, those of the user that other
 * programs share, and those of the workspace. So no skill of a workspace takes the place of the user's.
 */
export function skillFolders(
  dirs: readonly string[],
  { dataDir, workspaceRoot, home }: ExtensionPlaces,
): readonly SkillFolder[] {
  const chosen = dirs.map((path) => resolvePath(path, dataDir, home));
  const own = [...chosen, join(dataDir, "skills")].map((path) => ({ path, layer: "own" as const, shownAs: path }));
  const shared = SHARED.map((path) => ({ path: join(home, path), layer: "user" as const, shownAs: `~/${path}` }));
  const inWorkspace = SHARED.map((path) => ({
    path: join(workspaceRoot, path),
    layer: "workspace" as const,
    shownAs: path,
  }));
  // Skills of a home folder that is the workspace count as the workspace's
  return workspaceRoot === home ? [...own, ...inWorkspace] : [...own, ...shared, ...inWorkspace];
}

/**
 * Checks that the workspace is a folder.
 * @param way what the operator can do, for the message
 * @throws {ConfigError} `workspace`
 */
export async function requireFolder(workspace: string, way: string): Promise<void> {
  const isFolder = await stat(workspace).then((info) => info.isDirectory(), () => false);
  if (isFolder) return;
  throw new ConfigError("workspace", `Cannot work in "${workspace}": it is not a folder; ${way}`, { key: "workspace" });
}

function xdg(value: string | undefined): string | undefined {
  return value !== undefined && isAbsolute(value) ? value : undefined;
}
