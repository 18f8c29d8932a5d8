import { existsSync, realpathSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { isAbsolute, join, normalize } from "node:path";
import { messageOf, ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { isWithin } from "../../system/files/forbidden_paths.ts";
import { createCommandLookup, SEARCH_PATH } from "../../system/process/command_lookup.ts";
import type { ToolSecrets } from "../../tools/secrets/tool_secrets.ts";
import type { PathGrant, ProgramRequest, RunningProgram, WriteWatch } from "../../system/process/prepare_program.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { AfterProgram } from "../../system/process/workspace_watch.ts";
import { McpError } from "./mcp_error.ts";

/** `[mcp.servers.<name>]`. */
export type McpServerSettings = Config["mcp"]["servers"][string];

/** Services that starting the program of a server needs. */
export interface ProgramPlaces {
  readonly processes: Pick<Processes, "prepareProgram" | "watchWrites">;
  /** Absolute path of the data directory */
  readonly dataDir: string;
  /** The user's home folder, absolute */
  readonly home: string;
  /** Absolute path of the folder that the agent works in */
  readonly workspaceRoot: string;
  /** Returns the newest configuration. Its forbidden paths are hidden from a server in the sandbox, unless its own `paths` name them */
  readonly config: () => Config;
  /** Returns a variable of the gateway's environment. */
  readonly environment: (name: string) => string | undefined;
  /** Fills secrets into `env` and `headers`. */
  readonly secrets: Pick<ToolSecrets, "fill">;
}

/** Files that a program with the network needs to find names. */
const NAME_FILES = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf"];

/**
 * Starts the program of a server, in a folder of its own below the data directory: what lies in the workspace is the agent's, and must
 * not decide what runs. Its environment is `PATH`, `HOME`, `LANG`, `TMPDIR` and `env`.
 * @throws {McpError} `mcp_unavailable` @throws {CancelError} when the signal aborts
 */
export async function startProgram(
  { name, settings, signal }: {
    readonly name: string;
    readonly settings: McpServerSettings;
    readonly signal: AbortSignal;
  },
  places: ProgramPlaces,
): Promise<RunningProgram> {
  try {
    const request = await requestOf({ name, settings, signal }, places);
    const prepared = await places.processes.prepareProgram(request);
    return await prepared.start();
  } catch (error) {
    if (!(error instanceof ToolError) || error instanceof McpError) throw error;
    throw notStarted(name, error.message, error);
  }
}

/**
 * Watches the workspace for what the program of a server writes from now on until `after`: its files are content from outside.
 * @throws {McpError} `mcp_unavailable`
 */
export async function watchServer(
  { name, settings }: Pick<Parameters<typeof startProgram>[0], "name" | "settings">,
  { processes, workspaceRoot }: Pick<ProgramPlaces, "processes" | "workspaceRoot">,
): Promise<AfterProgram> {
  const writable = settings.paths.filter((entry) => !entry.endsWith(READ_ONLY));
  try {
    return await processes.watchWrites({ ...watchedOf(name, workspaceRoot), sandbox: settings.sandbox, writable });
  } catch (cause) {
    const message = `Cannot mark what the MCP server "${name}" writes: ${messageOf(cause)}`;
    throw new McpError("mcp_unavailable", message, { server: name, cause, written: false });
  }
}

/** @param forbiddenPaths hidden from the program. The watch looks there too: it may not be contained */
function watchedOf(
  name: string,
  workspaceRoot: string,
  forbiddenPaths: readonly string[] = [],
): Pick<WriteWatch, "taint" | "scope"> {
  return {
    taint: [`mcp ${name}`],
    scope: { workspaceRoot, workspaceOnly: true, forbiddenPaths, allowSensitive: false },
  };
}

/** Returns the error of a server that did not start. @param reason rest of the sentence */
export function notStarted(server: string, reason: string, cause?: unknown): McpError {
  const message = `Cannot start the MCP server "${server}": ${reason}`;
  return new McpError("mcp_unavailable", message, { server, cause, written: false });
}

async function requestOf(
  { name, settings, signal }: Parameters<typeof startProgram>[0],
  { dataDir, home, workspaceRoot, config, environment, secrets }: ProgramPlaces,
): Promise<ProgramRequest> {
  const { command, args, sandbox, paths, network } = settings;
  const env = await secrets.fill(settings.env, { child: { kind: "mcp", name }, signal });
  const own = join(dataDir, "mcp", "servers", name);
  await mkdir(own, { recursive: true, mode: 0o700 });
  const path = env["PATH"] ?? environment("PATH") ?? SEARCH_PATH.join(":");
  const file = isAbsolute(command) ? command : await findCommand(name, command, path);
  const grants = paths.map((entry) => readGrant(name, entry, workspaceRoot));
  const files = [file, ...network ? NAME_FILES : []].filter((shown) => existsSync(shown));
  return {
    title: `the MCP server "${name}"`,
    program: {
      ...{ file, args, env },
      folder: own,
      shown: files,
      ownEnvironment: {
        values: { PATH: path, HOME: home, LANG: environment("LANG") ?? "C.UTF-8" },
        temporary: join(own, "tmp"),
      },
    },
    rights: { writable: [own], grants, hosts: { entries: [], key: "" }, openNetwork: network },
    ...watchedOf(name, workspaceRoot, config().autonomy.forbidden_paths),
    sandbox,
    signal,
    section: `[mcp.servers.${name}]`,
  };
}

/** Finds a program as the person's shell does. @throws {McpError} `mcp_unavailable` */
async function findCommand(server: string, command: string, path: string): Promise<string> {
  const folders = path.split(":").filter(isAbsolute);
  const found = await createCommandLookup(folders).find(command);
  if (found !== undefined) return found;
  const reason = command.includes("/")
    ? `"${command}" is no absolute path; [mcp.servers.${server}] command needs one, or the bare name of a program`
    : `no folder of PATH (${path}) has the program "${command}"`;
  throw notStarted(server, reason);
}

const READ_ONLY = ":ro";

/** @throws {McpError} `mcp_unavailable` */
function readGrant(server: string, entry: string, workspaceRoot: string): PathGrant {
  const readOnly = entry.endsWith(READ_ONLY);
  const path = readOnly ? entry.slice(0, -READ_ONLY.length) : entry;
  const key = `[mcp.servers.${server}] paths`;
  if (!isAbsolute(path)) throw notStarted(server, `${key} has "${entry}", which is no absolute path`);
  if (!existsSync(path)) throw notStarted(server, `${key} has "${path}", and nothing is there`);
  const [workspace, real] = [realpathSync(workspaceRoot), realpathSync(path)];
  const isInside = [workspaceRoot, workspace].some((folder) => isWithin(normalize(path), folder));
  // A command may have put a link in the place of what the person meant
  if (isInside && !isWithin(real, workspace)) {
    throw notStarted(server, `${key} has "${path}", which leads out of the workspace; give the path that it leads to`);
  }
  return { path: normalize(path), real, readOnly };
}
