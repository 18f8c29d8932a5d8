import { Buffer } from "node:buffer";
import { realpath, stat } from "node:fs/promises";
import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import type { CommandLookup } from "./command_lookup.ts";
import type { CommandLine } from "./process_group.ts";
import { runCommand } from "./run_command.ts";

/** Whether commands can be contained on this machine, and where not, why. */
export type Containment =
  | { readonly kind: "bubblewrap"; readonly file: string }
  /** `timedOut`: the try took too long, so the next one may say otherwise */
  | { readonly kind: "none"; readonly reason: string; readonly timedOut?: boolean };

/** Seen read-only by a contained command where they exist; of `/etc` only what the loader and Debian's links need. */
const SYSTEM_FOLDERS = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/etc/alternatives",
  "/etc/ld.so.cache",
  "/etc/ld.so.conf",
  "/etc/ld.so.conf.d",
  "/etc/ssl/certs",
  // Where Fedora and its relatives keep what the former names
  "/etc/pki/tls/certs",
  "/etc/pki/ca-trust/extracted",
] as const;
/** Linux takes two megabytes of arguments and environment */
const MAX_COVER_BYTES = 1_000_000;
const PROBE_TIMEOUT_MS = 5000;

/** The part of bubblewrap's options that every contained command has. */
const BASE_OPTIONS: readonly string[] = [
  "--die-with-parent",
  "--unshare-all",
  // Started by root it would keep what takes the mounts away again
  "--cap-drop",
  "ALL",
  ...SYSTEM_FOLDERS.flatMap((folder) => ["--ro-bind-try", folder, folder]),
  "--proc",
  "/proc",
  "--dev",
  "/dev",
  "--tmpfs",
  "/tmp",
];

/** Looks for bubblewrap and runs it once: a container may forbid what it needs. */
export async function findContainment(commands: Pick<CommandLookup, "find">, clock: Clock): Promise<Containment> {
  if (process.platform !== "linux") return { kind: "none", reason: "bubblewrap is there on Linux alone" };
  const file = await commands.find("bwrap");
  if (file === undefined) return { kind: "none", reason: "bubblewrap is not installed" };
  const program = await commands.find("true");
  if (program === undefined) return { kind: "none", reason: "there is no program to try bubblewrap with" };
  const line = { file, args: [...BASE_OPTIONS, "--", program], cwd: "/", env: {} };
  try {
    const { ending, stderr } = await runCommand(line, {
      timeoutMs: PROBE_TIMEOUT_MS,
      maxOutputBytes: 256,
      signal: new AbortController().signal,
      clock,
    });
    if (ending.kind === "exit" && ending.code === 0) return { kind: "bubblewrap", file };
    const reason = `bubblewrap does not work here (${stderr.text.trim() || ending.kind})`;
    return { kind: "none", reason, timedOut: ending.kind === "timeout" };
  } catch (error) {
    return { kind: "none", reason: error instanceof Error ? error.message : "bubblewrap cannot be started" };
  }
}

export interface ContainOptions {
  readonly bubblewrap: string;
  readonly workspaceRoot: string;
  /** Absolute paths that appear empty */
  readonly hidden: readonly string[];
  /** Default: without */
  readonly network?: boolean;
  /** Whether the workspace can only be read. Default false */
  readonly readOnly?: boolean;
}

/**
 * The same command inside bubblewrap: it sees the workspace, read-only system folders and an empty `/tmp`, which is its home;
 * no network; process ids of its own, which all end with it. Hidden files and folders of the workspace appear empty.
 * @returns undefined where the workspace holds the system itself, so that nothing would be contained
 */
export async function contain(
  line: CommandLine,
  options: ContainOptions,
): Promise<CommandLine | undefined> {
  const workspace = await realpath(options.workspaceRoot);
  if (["/usr", "/proc", "/dev", "/etc"].some((folder) => isWithin(folder, workspace))) return undefined;
  const network = options.network === true ? ["--share-net"] : [];
  const bind = options.readOnly === true ? "--ro-bind" : "--bind";
  const covers = (await Promise.all(options.hidden.map((path) => coverOf(path, workspace)))).flat();
  const bytes = covers.reduce((sum, option) => sum + Buffer.byteLength(option) + 1, 0);
  if (bytes > MAX_COVER_BYTES) {
    throw new ToolError(
      "sandbox_unavailable",
      'Cannot run the command in the sandbox: the workspace has more files of credentials than it can hide; set [security.shell] sandbox = "off", or take them out of the workspace',
    );
  }
  return {
    file: options.bubblewrap,
    args: [
      ...BASE_OPTIONS,
      ...network,
      ...[bind, workspace, workspace],
      ...covers,
      ...["--chdir", workspace, "--", line.file],
      ...line.args,
    ],
    cwd: workspace,
    env: { ...line.env, HOME: "/tmp" },
  };
}

/** Options that put something empty over a path of the workspace; none for what lies outside or does not exist. */
async function coverOf(path: string, workspace: string): Promise<readonly string[]> {
  const real = await realpath(path).catch(() => undefined);
  if (real === undefined || real === workspace || !isWithin(real, workspace)) return [];
  const folder = await stat(real).then((found) => found.isDirectory(), () => undefined);
  if (folder === undefined) return [];
  return folder ? ["--tmpfs", real] : ["--ro-bind", "/dev/null", real];
}
