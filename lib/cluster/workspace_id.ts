import { link, mkdir, open, readFile, realpath, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { systemClock } from "../base/clock.ts";
import { ConfigError, systemCodeOf } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import { createTemporaryNames, syncFolder } from "../base/durable_files.ts";
import type { Random } from "../base/random.ts";

/** Name of the file in the data directory that says which machine this is. */
const FILE = "workspace_id";
const OWN_ID = /^ws_[0-9a-z]{1,64}$/;
const OWN_PREFIX = "ws_";
/** Hexadecimal digits of the folder's digest in the id of a workspace of one gateway. */
const DIGEST_LENGTH = 12;

/** Place of a workspace, and the name that the operator gave it. */
export interface WorkspaceIdOptions {
  /** `[cluster] workspace_id`; empty: the workspace is this gateway's own. */
  readonly configured: string;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  readonly random: Random;
}

/**
 * Returns the id of this gateway's workspace in a cluster. Without a configured one it is made of an id that the data directory keeps and of
 * the workspace's real path: a gateway has it again after a restart, and another one with another folder.
 * @throws {ConfigError} `workspace_id` for a file that cannot be used
 */
export async function loadWorkspaceId(options: WorkspaceIdOptions): Promise<string> {
  const { configured, workspaceRoot } = options;
  if (configured !== "") return configured;
  const own = await loadMachineId(options);
  const folder = await realpath(workspaceRoot).catch(() => workspaceRoot);
  return `${own}.${canonicalDigest(folder).slice(0, DIGEST_LENGTH)}`;
}

/** Tells whether a workspace is that of one gateway: its id says which folder it is. No configured one begins so. */
export function isOwnWorkspace(id: string): boolean {
  return id.startsWith(OWN_PREFIX);
}

/** Returns the id that a data directory keeps, by which one machine's things are told from those of another. @throws {ConfigError} `workspace_id` */
export async function loadMachineId(
  { dataDir, random }: Pick<WorkspaceIdOptions, "dataDir" | "random">,
): Promise<string> {
  const path = join(dataDir, FILE);
  return await readOwnId(path) ?? await makeOwnId(path, random);
}

async function readOwnId(path: string): Promise<string | undefined> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw unusable(path, "it cannot be read", error);
  });
  const id = text?.trim();
  if (id !== undefined && !OWN_ID.test(id)) {
    throw unusable(path, "it holds something else; remove it, and runs that wait for this workspace stay behind");
  }
  return id;
}

/** Makes the file by a link: whole or not at all. When several processes try, one makes it. */
async function makeOwnId(path: string, random: Random): Promise<string> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const temporary = join(folder, createTemporaryNames({ clock: systemClock, random }).next());
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(`${random.id(OWN_PREFIX)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(temporary, path);
    await syncFolder(folder);
  } catch (cause) {
    if (systemCodeOf(cause) !== "EEXIST") throw unusable(path, "it cannot be made", cause);
  } finally {
    await rm(temporary, { force: true });
  }
  const made = await readOwnId(path);
  if (made === undefined) throw unusable(path, "it was removed while it was made");
  return made;
}

function unusable(path: string, reason: string, cause?: unknown): ConfigError {
  const message = `Cannot use the file "${FILE}" of the data directory: ${reason}`;
  return new ConfigError("workspace_id", message, { file: path, cause });
}
