import { ToolError } from "../../base/errors.ts";
import { parsePath } from "../../system/files/parse_path.ts";
import { isSensitive } from "../../system/files/sensitive_names.ts";
import type { GitResult, GitRunOptions, RemoteAddress, Repository } from "../../system/git/git.ts";
import type { ToolResult } from "../runtime/tool.ts";
import type { GitInput } from "./git_input.ts";

/** One call on a checked repository: what the operations are written with. */
export interface GitCall {
  readonly input: GitInput;
  readonly repository: Repository;
  readonly allowSensitiveReads: boolean;
  readonly allowSensitiveWrites: boolean;
  /** Checks an address by the URL policy. @throws {ToolError} */
  readonly checkUrl: (url: string) => Promise<RemoteAddress>;
  readonly allowCredentials: boolean;
}

/** Kept of what is read to be looked through; more is refused */
const MAX_NAMES_BYTES = 8_388_608;
const MAX_ERROR = 2000;
const MAX_NAMES_SHOWN = 5;

/** Runs a command that must succeed. @throws {ToolError} `git_failed` with what git says, and those of `Repository.run` */
export async function succeed(call: GitCall, args: readonly string[], options?: GitRunOptions): Promise<GitResult> {
  const result = await call.repository.run(args, options);
  if (result.code !== 0) throw failed(call.input.op, result);
  return result;
}

/** What git says about a command that failed; a merge says it on its output. */
export function failed(op: string, { stdout, stderr }: GitResult): ToolError {
  const said = [stderr.trim(), stdout.trim()].filter((text) => text !== "").join("\n").slice(0, MAX_ERROR);
  return new ToolError("git_failed", `Cannot finish git ${op}: ${said || "it failed without a message"}`);
}

/** File names, relative to the top, as a command prints them with `-z`. @throws {ToolError} `git_too_large` */
export async function namesOf(call: GitCall, args: readonly string[]): Promise<readonly string[]> {
  const { stdout, truncated } = await succeed(call, args, { maxOutputBytes: MAX_NAMES_BYTES });
  if (truncated) {
    throw new ToolError("git_too_large", `Cannot run git ${call.input.op}: too many files; name fewer in "paths"`);
  }
  return [...new Set(stdout.split("\0").filter((name) => name !== ""))];
}

/** Pathspecs of the files and folders the call names, taken letter by letter; none where it names none. */
export function pathspecs({ input, repository }: GitCall): readonly string[] {
  return (input.paths ?? []).map((path) => literal(fromTop(repository, parsePath(path).names.join("/"))));
}

/** A path below the repository's folder as one relative to the top. */
export function fromTop({ prefix }: Repository, path: string): string {
  return [...prefix.split("/"), ...path.split("/")].filter((name) => name !== "").join("/");
}

/** A pathspec of one path relative to the top; the top itself has no letters to be taken by. */
export function literal(path: string): string {
  return path === "" ? ":(top)" : `:(top,literal)${path}`;
}

/** Whether a file, by its path relative to the top, is one that may be neither shown, stored nor overwritten. */
export function isHidden({ repository }: GitCall, path: string, allowSensitive: boolean): boolean {
  if (repository.forbiddenBy(path) !== undefined) return true;
  return !allowSensitive && isSensitive([...repository.folder.split("/"), ...path.split("/")]);
}

/** Those of the files that have other names: what is read from them may come from outside. */
export async function linkedOf({ repository }: GitCall, names: readonly string[]): Promise<readonly string[]> {
  const linked = await Promise.all(names.map(async (name) => (await repository.isLinked(name)) ? [name] : []));
  return linked.flat();
}

/**
 * Refuses a call that would touch a sensitive or forbidden file.
 * @param options.does as `store`, for the message
 * @throws {ToolError} `path_sensitive`, `path_forbidden`
 */
export function requireOpen(
  call: GitCall,
  names: readonly string[],
  options: { readonly does: "store" | "overwrite"; readonly allowSensitive: boolean },
): void {
  const { does, allowSensitive } = options;
  const hidden = names.filter((name) => isHidden(call, name, allowSensitive));
  if (hidden.length === 0) return;
  const shown = hidden.slice(0, MAX_NAMES_SHOWN).map((name) => JSON.stringify(name)).join(", ");
  const rest = hidden.length > MAX_NAMES_SHOWN ? ` and ${hidden.length - MAX_NAMES_SHOWN} more` : "";
  const forbidden = hidden.map((name) => call.repository.forbiddenBy(name)).find((by) => by !== undefined);
  const head = `Cannot run git ${call.input.op}: it would ${does} ${shown}${rest}`;
  if (forbidden !== undefined) {
    throw new ToolError("path_forbidden", `${head}, in the forbidden path "${forbidden}"; name other "paths"`);
  }
  const key = does === "store" ? "allow_sensitive_file_reads" : "allow_sensitive_file_writes";
  const ways = does === "store" ? 'name other "paths", or put them into .gitignore' : "leave them as they are";
  throw new ToolError(
    "path_sensitive",
    `${head}, and files of this name hold credentials; ${ways}; [autonomy] ${key} = true allows it`,
  );
}

/** A result for the model; `empty` stands where git printed nothing. */
export function toResult(
  text: string,
  options: { readonly empty: string; readonly truncated?: boolean; readonly hidden?: readonly string[] },
): ToolResult {
  const { empty, truncated = false, hidden = [] } = options;
  const shown = hidden.slice(0, MAX_NAMES_SHOWN).map((name) => JSON.stringify(name)).join(", ");
  const output = [
    text.replace(/\n+$/, "") || (hidden.length === 0 ? empty : ""),
    truncated ? '[Cut: ask for less at a time, with "paths" or "limit"]' : "",
    hidden.length === 0
      ? ""
      : `[Left out, sensitive, forbidden or of several names: ${shown}${
        hidden.length > MAX_NAMES_SHOWN ? " ..." : ""
      }]`,
  ].filter((part) => part !== "").join("\n");
  return { output, isError: false, data: { truncated, left_out: hidden } };
}
