import { isAbsolute, relative, sep } from "node:path";
import type { Clock } from "../../../base/clock.ts";
import { ToolError } from "../../../base/errors.ts";
import { exactLine } from "../../../base/text.ts";
import { createCommandLookup, SEARCH_PATH } from "../../../system/process/command_lookup.ts";
import { runCommand } from "../../../system/process/run_command.ts";
import { McpInstallError } from "./package_spec.ts";

/** Machine and person that an installation runs for. */
export interface InstallerOptions {
  /** Environment of the person who installs. Only what finds registries, proxies and certificates is handed on */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** Folder that tools may write to: no installer in it is used */
  readonly workspace: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Programs of the machine that install packages. */
export interface InstallerPrograms {
  /** Returns the absolute path of a program. Undefined where the machine has none */
  find(name: string): Promise<string | undefined>;
  /**
   * Runs a program to its end and returns what it printed on standard output.
   * @throws {McpInstallError} `installer_failed` with the last lines of its error output
   * @throws {CancelError} when the signal aborts
   */
  run(step: InstallerStep): Promise<string>;
}

/** Command of an installation. */
export interface InstallerStep {
  /** Work that the command does, after "Cannot", for the message */
  readonly title: string;
  /** Absolute path */
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Names of variables that an installer gets: no other variable of the person reaches it. */
const HANDED_ON =
  /^(?:HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TMPDIR|XDG_(?:CACHE|CONFIG|DATA)_HOME|(?:https?|all|no)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|NPM_TOKEN|npm_config_(?:registry|cache|userconfig|cafile|proxy|https_proxy|noproxy)|PIP_(?:INDEX_URL|CERT|PROXY|CACHE_DIR|CONFIG_FILE)|UV_(?:INDEX_URL|DEFAULT_INDEX|CACHE_DIR|NATIVE_TLS))$/i;
const TIMEOUT_MS = 600_000;
const MAX_OUTPUT_BYTES = 16_777_216;
const MAX_REASON = 600;
/** Reply of npm and pip to bytes that are not those of the registry's metadata. */
const TAMPERED = /EINTEGRITY|THESE PACKAGES DO NOT MATCH THE HASHES|hash mismatch|Hash mismatch/;

/** Opens the installers of this machine: those of the system's folders, then those of the person's PATH outside the workspace. */
export function openInstallers(options: InstallerOptions): InstallerPrograms {
  const { env, workspace, home, clock, signal } = options;
  const own = (env["PATH"] ?? "").split(":").filter((folder) => isAbsolute(folder) && !isInFolder(folder, workspace));
  const searchPath = [...new Set([...own, ...SEARCH_PATH])];
  const lookup = createCommandLookup(searchPath);
  const given = Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => value !== undefined && HANDED_ON.test(name) ? [[name, value]] : []),
  );
  return {
    find: (name) => lookup.find(name),
    async run({ title, file, args, cwd, env: further = {} }) {
      const line = { file, args, cwd, env: { HOME: home, ...given, PATH: searchPath.join(":"), ...further } };
      const result = await runCommand(line, { timeoutMs: TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES, signal, clock })
        .catch((error: unknown) => {
          if (error instanceof ToolError) throw failed(title, error.message, error);
          throw error;
        });
      const { ending } = result;
      const stdout = result.stdout.text;
      if (ending.kind === "exit" && ending.code === 0) return stdout;
      if (ending.kind === "timeout") throw failed(title, `it took longer than ${TIMEOUT_MS / 60_000} minutes`);
      throw explain(title, reasonOf(result.stderr.text) || reasonOf(stdout));
    },
  };
}

/** Tells whether a path is a folder or in it. */
export function isInFolder(path: string, folder: string): boolean {
  const way = relative(folder, path);
  return way === "" || (way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}

/** Lines of npm that say nothing about the reason. */
const IDLE_LINE = /^(?:at |A complete log|errno |syscall |\/|\{|\}|$)/;

/** Returns the reason that an installer gave as one line, without credentials of addresses. */
function reasonOf(said: string): string {
  const lines = said.replace(/:\/\/[^\s/@]*@/g, "://***@").split("\n").map((line) =>
    line.trim().replace(/^npm (?:error|ERR!)\s*/, "")
  ).filter((line) => !IDLE_LINE.test(line));
  const errors = lines.filter((line) => /error|[×╰]|no matching/i.test(line));
  return exactLine(
    [...new Set(errors.length > 0 && !/npm /.test(said) ? errors : lines)].join(" | ").slice(0, MAX_REASON),
  );
}

function explain(title: string, said: string): McpInstallError {
  if (TAMPERED.test(said)) {
    const reason = "the bytes are not those that the registry's metadata promise, and nothing was installed";
    return new McpInstallError("package_tampered", `Cannot ${title}: ${reason} (${said})`);
  }
  return failed(title, said === "" ? "the installer failed and gave no reason" : said);
}

function failed(title: string, reason: string, cause?: unknown): McpInstallError {
  return new McpInstallError("installer_failed", `Cannot ${title}: ${reason}`, { cause });
}
