import { ToolError } from "../../base/errors.ts";
import { listSome, withoutEnd } from "../../base/text.ts";
import { parsePath } from "../../system/files/parse_path.ts";
import type { GitResult, GitRunOptions, RemoteAddress, Repository } from "../../system/git/git.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import type { GitInput } from "./git_input.ts";

/** Call on a checked repository, with everything that an operation uses. */
export interface GitCall {
  readonly input: GitInput;
  readonly repository: Repository;
  readonly allowSensitiveReads: boolean;
  readonly allowSensitiveWrites: boolean;
  /** Checks an address by the URL policy. @throws {ToolError} */
  readonly checkUrl: (url: string) => Promise<RemoteAddress>;
  readonly allowCredentials: boolean;
}

/** Bytes of a list of names that are read; a longer list is refused */
const MAX_NAMES_BYTES = 8_388_608;
/** Bytes of the list of the index. The list of a repository of a million files is longer */
export const MAX_INDEX_BYTES = 134_217_728;
const MAX_ERROR = 2000;
/** Names that one sentence shows. */
export const MAX_NAMES_SHOWN = 5;

/** Runs a command that must succeed. @throws {ToolError} `git_failed` with what git says, and those of `Repository.run` */
export async function succeed(call: GitCall, args: readonly string[], options?: GitRunOptions): Promise<GitResult> {
  const result = await call.repository.run(args, options);
  if (result.code !== 0) throw failed(call.input.op, result);
  return result;
}

/** Returns the error with the message of git. A merge writes its message to stdout. */
export function failed(op: string, { stdout, stderr }: GitResult): ToolError {
  const said = [stderr.trim(), stdout.trim()].filter((text) => text !== "").join("\n").slice(0, MAX_ERROR);
  return new ToolError("git_failed", `Cannot finish git ${op}: ${said || "it failed without a message"}`);
}

/** Returns the file names, relative to the top, that a command prints with `-z`, each once. @throws {ToolError} `git_too_large` */
export async function namesOf(call: GitCall, args: readonly string[]): Promise<readonly string[]> {
  return [...new Set(await fieldsOf(call, args))].filter((name) => name !== "");
}

/** Returns the fields that a command prints with `-z`. @throws {ToolError} `git_too_large` */
export async function fieldsOf(
  call: GitCall,
  args: readonly string[],
  maxOutputBytes = MAX_NAMES_BYTES,
): Promise<readonly string[]> {
  const { stdout, truncated } = await succeed(call, args, { maxOutputBytes });
  if (truncated) {
    throw new ToolError("git_too_large", `Cannot run git ${call.input.op}: too many files; name fewer in "paths"`);
  }
  return stdout.split("\0");
}

/** Returns literal pathspecs of the files and folders that the call names. Empty when the call names none. */
export function pathspecs({ input, repository }: GitCall): readonly string[] {
  if (repository.file !== undefined) return [literal(fromTop(repository, repository.file))];
  return (input.paths ?? []).map((path) => literal(fromTop(repository, parsePath(path).names.join("/"))));
}

/** Returns a path below the call's folder as a path relative to the top. */
export function fromTop({ prefix }: Repository, path: string): string {
  return [...prefix.split("/"), ...path.split("/")].filter((name) => name !== "").join("/");
}

/** Returns the literal pathspec of a path relative to the top. The empty path is the top itself. */
export function literal(path: string): string {
  return path === "" ? ":(top)" : `:(top,literal)${path}`;
}

/** Makes the result for the model. @param options.empty text for a command that printed nothing */
export function toResult(
  text: string,
  options: { readonly empty: string; readonly truncated?: boolean; readonly hidden?: readonly string[] },
): ToolResult {
  const { empty, truncated = false, hidden = [] } = options;
  const shown = listSome(hidden.map((name) => JSON.stringify(name)), MAX_NAMES_SHOWN);
  const output = [
    withoutEnd(text, "\n") || (hidden.length === 0 ? empty : ""),
    truncated ? '[Cut: ask for less at a time, with "paths" or "limit"]' : "",
    hidden.length === 0 ? "" : `[Left out, sensitive, forbidden or of several names: ${shown}]`,
  ].filter((part) => part !== "").join("\n");
  return { output, isError: false, data: { truncated, left_out: hidden } };
}
