import { createHash } from "node:crypto";
import { join, resolve } from "node:path";
import { cancelError } from "../../base/cancel.ts";
import { canonicalDigest } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { changesFiles } from "../../guard/policy.ts";
import type { Files, FileScope } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { CommandContainment } from "../../system/process/containment.ts";
import type { Processes } from "../../system/process/processes.ts";
import { writeScope } from "../files/file_scope.ts";
import type { BoundParts, PreparedCall, ScreenContext, Tool, ToolServices } from "./tool.ts";
import type { CallBinding } from "./tool_call.ts";

/** Options of bindCall. */
export interface BindOptions {
  readonly services: Pick<ToolServices, "files" | "commands" | "processes">;
  readonly workspaceRoot: string;
  readonly config: Config;
  /** Context for the tool's own `bind` */
  readonly context: ScreenContext;
  readonly signal: AbortSignal;
}

/** Attempts to read a file that changes while it is read */
const MAX_ATTEMPTS = 3;
const CHUNK_BYTES = 65_536;

/**
 * Reads everything that the call would change or run, and returns it with one digest.
 * @throws {ToolError} for a path that the call itself could not use: no approval is opened for a call that cannot run
 * @throws {CancelError} when the signal aborts
 */
export async function bindCall(tool: Tool, prepared: PreparedCall, options: BindOptions): Promise<CallBinding> {
  const { services, workspaceRoot, config, signal } = options;
  const { paths = [], command = [], root: rootOf } = prepared.effects;
  const { allow_sensitive_file_writes: allowSensitiveFileWrites } = config.autonomy;
  const scope = {
    ...writeScope({ workspaceRoot, config, allowSensitiveFileWrites }),
    allowedRoot: rootOf === undefined ? "." : config.security[rootOf].allowed_root,
  };
  const parts: BoundParts = await prepared.bind?.({ ...options.context, signal }) ?? { shown: [] };
  const { shown: bound, more = null } = parts;
  // A tool that reaches its paths by other means says itself what it is bound to
  const isThroughFiles = prepared.bind === undefined || parts.throughFiles === true;
  const changes = changesFiles(prepared) && isThroughFiles ? [...new Set(paths)] : [];
  const files: { path: string; sha256: string | null }[] = [];
  const versions = new Map<string, string | undefined>();
  const places: string[] = [];
  for (const path of changes) {
    const { sha256, version, place } = await readFile(path, { files: services.files, scope, signal, tool });
    files.push({ path, sha256 });
    versions.set(path, version);
    if (place !== undefined) places.push(place);
  }
  const containment = await callContainment(tool, prepared, { config, processes: services.processes });
  const root = resolve(workspaceRoot, scope.allowedRoot);
  // A place that could not be looked at lies in no folder that is known. A rule for a folder says nothing of the host a download is from
  const folder = parts.folder === undefined
    ? prepared.access === "write" && places.length > 0 && places.length === changes.length
      ? join(root, commonFolder(places))
      : undefined
    : resolve(workspaceRoot, parts.folder);
  const digest = canonicalDigest({
    tool: tool.name,
    input: prepared.digest,
    workspace: workspaceRoot,
    schema: canonicalDigest(tool.inputSchema ?? null),
    executable: command[0] === undefined ? null : await services.commands.identify(command[0]) ?? null,
    ...(files.length === 0 ? {} : { root: scope.allowedRoot, files, folder: folder ?? null }),
    ...(prepared.bind === undefined ? {} : { bound, more }),
    // A call that a person allowed inside the sandbox must not run without the sandbox
    ...(containment === null ? {} : { containment: containment.kind }),
    // Nor with a network that it did not have then
    ...(command.length > 0 && config.security.shell.network !== "none" ? { network: config.url_access } : {}),
    ...(command.length > 0 && config.security.shell.local_sockets.length > 0
      ? { localSockets: config.security.shell.local_sockets }
      : {}),
  });
  return { digest, files, bound, containment, folder, versions };
}

interface ReadOptions {
  readonly files: Files;
  readonly scope: FileScope;
  readonly signal: AbortSignal;
  readonly tool: Tool;
}

interface ReadFile {
  readonly sha256: string | null;
  readonly version: string | undefined;
  /** Real path relative to the root */
  readonly place: string | undefined;
}

/** Returns the deepest folder that all these paths lie in, with `/`. Empty for the root. */
function commonFolder(paths: readonly string[]): string {
  const [first = [], ...rest] = paths.map((path) => path.split("/").slice(0, -1));
  let length = first.length;
  for (const names of rest) {
    while (length > 0 && names.slice(0, length).join("/") !== first.slice(0, length).join("/")) length--;
  }
  return first.slice(0, length).join("/");
}

async function readFile(
  path: string,
  { files, scope, signal, tool }: ReadOptions,
): Promise<ReadFile> {
  const look = async () => {
    const { file, path: place } = await files.inspect(path, scope, { maxBytes: undefined });
    return { version: file?.version, place };
  };
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    try {
      const { version, place } = await look();
      if (version === undefined) return { sha256: null, version, place };
      const sha256 = await digestOf(path, version, { files, scope, signal });
      const again = await look();
      if (sha256 !== undefined && version === again.version && place === again.place) return { sha256, version, place };
    } catch (error) {
      // A tool that reaches its paths by other means has its own rules for them
      if (!(error instanceof ToolError) || tool.needs.includes("files")) throw error;
      return { sha256: `unread:${error.code}`, version: undefined, place: undefined };
    }
  }
  throw new ToolError("path_changed", `Cannot ask about ${shown(path)}: it keeps changing; try again later`);
}

/** Returns the digest of a file. Undefined: another one had its name while it was opened, and may have given it back since */
async function digestOf(
  path: string,
  version: string,
  { files, scope, signal }: Omit<ReadOptions, "tool">,
): Promise<string | undefined> {
  const file = await files.open(path, scope);
  try {
    if (!file.isVersion(version)) return undefined;
    const hash = createHash("sha256");
    const buffer = new Uint8Array(CHUNK_BYTES);
    for (let position = 0;;) {
      if (signal.aborted) throw cancelError(signal);
      const read = await file.read(buffer, position);
      if (read === 0) return hash.digest("hex");
      hash.update(buffer.subarray(0, read));
      position += read;
    }
  } finally {
    await file.close();
  }
}

/**
 * Returns the files service for one approved call, which changes only the approved versions of the approved files.
 *
 * A file that somebody writes between the last look and the change is refused too: `change` replaces only the version it is given.
 */
export function bindFiles(files: Files, versions: CallBinding["versions"]): Files {
  return {
    ...files,
    async change(changes, scope, options) {
      for (const { path, expected } of changes) {
        if (versions.has(path) && versions.get(path) === expected) continue;
        throw new ToolError(
          "path_changed",
          `Cannot change ${shown(path)}: it is not what it was when the call was approved; look again and ask again`,
        );
      }
      await files.change(changes, scope, options);
    },
  };
}

/**
 * Returns the containment of the programs that a call starts.
 * @returns null for a call that starts none
 */
export async function callContainment(
  tool: Pick<Tool, "needs">,
  { effects }: Pick<PreparedCall, "effects">,
  { config, processes }: { readonly config: Config; readonly processes: Pick<Processes, "containment"> },
): Promise<CommandContainment | null> {
  const isGit = tool.needs.includes("git");
  if (effects.command === undefined && !isGit) return null;
  const { shell } = config.security;
  return await processes.containment(isGit ? { sandbox: shell.sandbox } : shell);
}
