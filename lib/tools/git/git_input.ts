import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { parsePath } from "../../system/files/parse_path.ts";
import type { Repository } from "../../system/git/git.ts";
import type { Access } from "../runtime/tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";

const text = (maxLength: number, description: string) =>
  v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(maxLength), v.description(description)));

/** Schema of the input. */
export const gitInput = v.strictObject({
  op: v.pipe(
    v.picklist(["status", "diff", "log", "show", "branch", "add", "commit", "checkout", "stash", "push", "pull"]),
    v.description("What to do"),
  ),
  path: text(
    4096,
    "Folder (log, show, diff: or file), relative to the workspace. Default: the workspace",
  ),
  paths: v.optional(
    v.pipe(
      v.array(v.pipe(v.string(), v.minLength(1), v.maxLength(4096))),
      v.minLength(1),
      v.maxLength(256),
      v.description("Files and folders, relative to path, without wildcards. add needs them"),
    ),
  ),
  staged: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "diff, stash: only the staged changes; checkout with paths: unstages them",
      ),
    ),
  ),
  limit: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.maxValue(1000),
      v.description("log: commits, default 20; branch: branches, default 100"),
    ),
  ),
  rev: text(
    256,
    "diff, log, show, checkout: HEAD~1, branch, tag or hash; diff, log: also from..to; show: also HEAD:file. log with stash lists the stashes; stash with stash@{0} brings that one back",
  ),
  message: text(16_384, "commit, stash: the message. commit needs it"),
  branch: text(
    250,
    "checkout: branch to switch to, made new when rev is given; push, pull: branch at the remote. Default: the current one",
  ),
  remote: text(250, "push, pull: name of a configured remote. Default origin"),
});

/** Checked input of a call. */
export type GitInput = v.InferOutput<typeof gitInput>;
/** Name of an operation. */
export type GitOp = GitInput["op"];

/** Access of each operation, and the fields that it takes beside `op` and `path`. */
export const OPERATIONS: Readonly<Record<GitOp, { readonly access: Access; readonly fields: readonly string[] }>> = {
  status: { access: "read", fields: ["paths"] },
  diff: { access: "read", fields: ["paths", "staged", "rev"] },
  log: { access: "read", fields: ["paths", "limit", "rev"] },
  show: { access: "read", fields: ["paths", "rev"] },
  branch: { access: "read", fields: ["limit"] },
  add: { access: "write", fields: ["paths"] },
  commit: { access: "write", fields: ["paths", "message"] },
  checkout: { access: "write", fields: ["paths", "staged", "rev", "branch"] },
  stash: { access: "write", fields: ["paths", "staged", "rev", "message"] },
  push: { access: "network", fields: ["branch", "remote"] },
  pull: { access: "network", fields: ["branch", "remote"] },
};

/** Operations that take a file as `path`. */
export const TAKES_FILE: ReadonlySet<GitOp> = new Set(["log", "show", "diff"]);

/** Meaning of `rev`: a commit, a range between two commits, or a file in a commit. */
export type Revision =
  | { readonly kind: "commit"; readonly rev: string }
  | { readonly kind: "range"; readonly from: string; readonly to: string; readonly dots: ".." | "..." }
  | { readonly kind: "file"; readonly rev: string; readonly path: string };

/** Name of a stash, as the list of stashes has it */
const STASH = /^stash@\{\d{1,4}\}$/;

/**
 * Checks the rules that the schema cannot express. Looks at no disk.
 * @throws {ToolError} `invalid_input` naming the field, and those of `parsePath`
 */
export function checkGitInput(input: GitInput): void {
  const { op, path, paths, staged, rev, branch, remote } = input;
  requireOpFields("git_operations", input, { add: ["paths"], commit: ["message"] });
  const { fields } = OPERATIONS[op];
  for (const [field, value] of Object.entries(input)) {
    if (value === undefined || field === "op" || field === "path" || fields.includes(field)) continue;
    const taken = ["path", ...fields].map((name) => `"${name}"`).join(", ");
    throw invalid(`op "${op}" takes ${taken}, and no "${field}"`);
  }
  if (path !== undefined) parsePath(path, "run git in");
  for (const each of paths ?? []) parsePath(each, "run git on");
  if (branch !== undefined && !isBranchName(branch)) throw invalid('"branch" is no name that git takes for a branch');
  if (remote !== undefined && !/^[\p{L}\p{N}_][\p{L}\p{N}_.-]*$/u.test(remote)) {
    throw invalid('"remote" must be the name of a configured remote, such as origin');
  }
  checkRevision(op, rev, staged);
  if (op === "checkout") checkCheckout(input);
  if (op === "show" && paths !== undefined && rev !== undefined && parseRevision(rev).kind === "file") {
    throw invalid('"rev" names a file, so that "paths" names none');
  }
  if (op === "stash" && rev !== undefined && (paths ?? staged ?? input.message) !== undefined) {
    throw invalid('"rev" brings a stash back as it is, without "paths", "staged" and "message"');
  }
}

function checkRevision(op: GitOp, rev: string | undefined, staged: boolean | undefined): void {
  if (rev === undefined) return;
  const { kind } = parseRevision(rev);
  if (op === "stash" && !STASH.test(rev)) throw invalid('"rev" must be a stash, such as stash@{0}');
  if (kind === "file" && op !== "show") throw invalid(`"rev" names a file, which op "show" alone takes`);
  if (kind !== "range") return;
  if (op !== "diff" && op !== "log") throw invalid('"rev" must be one commit');
  if (staged === true) throw invalid('"staged" compares with one commit, and "rev" names two');
}

function checkCheckout({ paths, staged, rev, branch }: GitInput): void {
  if (paths === undefined && branch === undefined && rev === undefined) {
    throw invalid('op "checkout" needs "branch", "rev" or "paths"');
  }
  if (paths !== undefined && branch !== undefined) throw invalid('give "branch" or "paths"');
  if (paths === undefined && staged !== undefined) throw invalid('"staged" needs "paths" in op "checkout"');
}

/**
 * Checks what only the disk tells: with a file as `path` nothing else names a file.
 * @param file name of the file; undefined for a folder
 * @throws {ToolError} `invalid_input`
 */
export function checkFile({ op, paths, rev }: GitInput, file: string | undefined): void {
  if (file === undefined) return;
  if (paths !== undefined) throw invalid('"paths" are below a folder, and "path" is a file');
  if (op === "show" && rev !== undefined && parseRevision(rev).kind === "file") {
    throw invalid('"rev" names a file below a folder, and "path" is a file');
  }
}

/** Tells whether git takes a name for a branch, by the rules of `git check-ref-format --branch`. */
export function isBranchName(name: string): boolean {
  if (name === "HEAD" || name === "@" || name.startsWith("-")) return false;
  // deno-lint-ignore no-control-regex
  if (/[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\.$/.test(name)) return false;
  return name.split("/").every((part) => part !== "" && !part.startsWith(".") && !part.endsWith(".lock"));
}

function invalid(reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot call "git_operations": ${reason}`);
}

/** Names of commits: no options, no search by text or regular expression, no path of the index. Slow to make, as all classes of Unicode */
const COMMIT = lazily(() => /^[\p{L}\p{N}_@][\p{L}\p{N}_@.\/+#=~^-]*(?:@\{-?[\p{L}\p{N}. :-]{1,40}\})?[~^\p{N}]*$/u);
const MAX_LENGTH = 256;

/**
 * Parses a revision as a call names it: `HEAD~2`, `main..topic`, `stash@{1}`, `HEAD:src/a.ts`.
 * @throws {ToolError} `invalid_input`, and those of `parsePath` for the path of a file
 */
export function parseRevision(text: string): Revision {
  const colon = text.indexOf(":");
  const brace = text.indexOf("@{");
  if (colon > 0 && (brace === -1 || colon < brace)) {
    const { names } = parsePath(text.slice(colon + 1), "show");
    return { kind: "file", rev: commitOf(text.slice(0, colon), text), path: names.join("/") };
  }
  const range = /^(.*?)(\.{2,3})(.*)$/s.exec(text);
  if (range === null) return { kind: "commit", rev: commitOf(text, text) };
  const [, from = "", dots = "..", to = ""] = range;
  return {
    kind: "range",
    from: commitOf(from || "HEAD", text),
    to: commitOf(to || "HEAD", text),
    dots: dots === "..." ? "..." : "..",
  };
}

function commitOf(rev: string, text: string): string {
  if (text.length <= MAX_LENGTH && COMMIT().test(rev) && !rev.includes("..")) return rev;
  throw new ToolError(
    "invalid_input",
    `Cannot call "git_operations": "rev" ${
      JSON.stringify(text.slice(0, 80))
    } names no commit; give one such as HEAD~1, a branch, ` +
      "a tag, a hash, from..to, or a file as HEAD:path",
  );
}

/**
 * Returns the full hash of a commit, so that later commands get the hash and never the text of the call.
 * @throws {ToolError} `git_unknown_revision`
 */
export async function resolveCommit(repository: Repository, rev: string): Promise<string> {
  const { code, stdout } = await repository.run(
    ["rev-parse", "--verify", "--quiet", "--end-of-options", `${rev}^{commit}`],
  );
  const hash = stdout.trim();
  if (code === 0 && /^[0-9a-f]{40,64}$/.test(hash)) return hash;
  throw new ToolError("git_unknown_revision", `Cannot find the commit ${JSON.stringify(rev)}: the repository has none`);
}
