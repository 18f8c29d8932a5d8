import { ToolError } from "../../base/errors.ts";
import type { FollowedBranch } from "../../system/git/follow_branch.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { requireOverwritable, requireStorable } from "./checked_names.ts";
import { failed, fieldsOf, type GitCall, MAX_INDEX_BYTES, namesOf, pathspecs, succeed, toResult } from "./git_call.ts";
import { status } from "./read_operations.ts";
import { resolveCommit } from "./git_input.ts";

/** Options of commands that list the names of changed files */
const NAMES = ["--name-only", "-z", "--no-renames", "--ignore-submodules=dirty", "--no-ext-diff", "--no-textconv"];

/** Stages files, and returns the status. */
export async function add(call: GitCall): Promise<ToolResult> {
  const specs = pathspecs(call);
  const listed = ["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--full-name"];
  await requireStorable(call, await namesOf(call, [...listed, "--", ...specs]));
  await succeed(call, ["add", "--", ...specs]);
  return await status(call);
}

/** Commits the staged changes, or the named files. */
export async function commit(call: GitCall): Promise<ToolResult> {
  const { message = "" } = call.input;
  const specs = pathspecs(call);
  if (specs.length > 0) {
    await requireStorable(
      call,
      await namesOf(call, ["ls-files", "-z", "--modified", "--deleted", "--full-name", "--", ...specs]),
    );
  }
  const args = [
    "commit",
    "--no-verify",
    "--no-gpg-sign",
    "--no-status",
    "--cleanup=whitespace",
    `--message=${message}`,
  ];
  const { stdout } = await succeed(call, [...args, "--", ...specs]);
  return toResult(stdout, { empty: "committed" });
}

/** Switches to a branch or commit, or restores the named files. */
export async function checkout(call: GitCall): Promise<ToolResult> {
  const { paths, rev } = call.input;
  if (paths !== undefined) return await restore(call);
  const commit = rev === undefined ? undefined : await resolveCommit(call.repository, rev);
  const { target, args, upstream } = await switchTo(call, commit);
  await requireOverwritable(call, await changedUpTo(call, target, ".."));
  await succeed(call, ["switch", "--quiet", "--no-progress", "--no-recurse-submodules", ...args]);
  if (upstream !== undefined) await call.repository.follow(upstream.branch, upstream);
  return await status(call);
}

/** Way to another branch or commit. */
interface Switch {
  /** Commit that is checked out */
  readonly target: string;
  /** Arguments of `git switch` */
  readonly args: readonly string[];
  /** Branch of a remote that a new branch of the same name follows. Default: none */
  readonly upstream?: FollowedBranch;
}

/** Finds the way to an existing branch, a new one, a remote one, or a commit. */
async function switchTo(call: GitCall, commit: string | undefined): Promise<Switch> {
  const { branch } = call.input;
  if (branch === undefined) {
    // checkCheckout has made sure that there is a branch or a commit
    const target = commit as string;
    return { target, args: ["--detach", target] };
  }
  if (commit !== undefined) return { target: commit, args: ["--no-track", "--create", branch, commit] };
  const local = await call.repository.run(["rev-parse", "--verify", "--quiet", `refs/heads/${branch}^{commit}`]);
  if (local.code === 0) return { target: local.stdout.trim(), args: ["--no-guess", branch] };
  const { stdout } = await succeed(call, ["for-each-ref", "--format=%(refname)", "refs/remotes"]);
  const remote = stdout.split("\n").filter((ref) => /^refs\/remotes\/[^/]+\//.test(ref))
    .filter((ref) => ref.split("/").slice(3).join("/") === branch);
  const [only] = remote;
  if (only === undefined || remote.length > 1) {
    throw new ToolError(
      "git_unknown_revision",
      `Cannot switch to the branch ${JSON.stringify(branch)}: ${
        only === undefined ? "there is none" : "several remotes have one"
      }; give "rev" to make it there, such as "HEAD"`,
    );
  }
  const target = await resolveCommit(call.repository, only);
  const [, , name = ""] = only.split("/");
  return { target, args: ["--no-track", "--create", branch, target], upstream: { remote: name, branch } };
}

/** Restores files from the index or a commit. With `staged`, restores the index alone: the files are unstaged. */
async function restore(call: GitCall): Promise<ToolResult> {
  const { rev, staged = false } = call.input;
  const specs = pathspecs(call);
  const source = rev === undefined ? [] : [await resolveCommit(call.repository, rev)];
  if (staged) {
    await succeed(call, ["restore", "--staged", ...source.map((hash) => `--source=${hash}`), "--", ...specs]);
    return await status(call);
  }
  const names = await namesOf(call, ["diff", ...NAMES, ...source, "--", ...specs]);
  await requireOverwritable(call, [...names, ...await unseenOf(call, specs)]);
  await succeed(call, ["checkout", "--quiet", "--no-recurse-submodules", ...source, "--", ...specs]);
  return await status(call);
}

/** Stashes changes, or brings a stash back. */
export async function stash(call: GitCall): Promise<ToolResult> {
  const { rev, message, staged = false } = call.input;
  if (rev !== undefined) return await bringBack(call, rev);
  const specs = pathspecs(call);
  const names = await namesOf(call, ["diff", ...NAMES, "HEAD", "--", ...specs]);
  await requireStorable(call, names);
  await requireOverwritable(call, [...names, ...await unseenOf(call, [])]);
  const { stdout } = await succeed(call, [
    ...["stash", "push", "--no-include-untracked"],
    ...(staged ? ["--staged"] : []),
    ...(message === undefined ? [] : [`--message=${message}`]),
    ...["--", ...specs],
  ]);
  return toResult(stdout, { empty: "stashed" });
}

/**
 * Returns the files that the index takes for unchanged, whatever they hold (`git update-index --assume-unchanged`): no list of changes has
 * them, and git overwrites them all the same.
 */
async function unseenOf(call: GitCall, specs: readonly string[]): Promise<readonly string[]> {
  const listed = await fieldsOf(call, ["ls-files", "-v", "-z", "--full-name", "--", ...specs], MAX_INDEX_BYTES);
  // A letter, in lower case for these, and a blank
  return listed.filter((entry) => /^[a-z] /.test(entry)).map((entry) => entry.slice(2));
}

async function bringBack(call: GitCall, rev: string): Promise<ToolResult> {
  const entry = await resolveCommit(call.repository, rev);
  await requireOverwritable(call, await namesOf(call, ["diff", ...NAMES, `${entry}^1`, entry, "--"]));
  const result = await call.repository.run(["stash", "pop", "--quiet", rev]);
  if (result.code !== 0) throw failed("stash", result);
  return await status(call);
}

/** Returns the files that differ between the current commit and another one. With `...`, since the two parted. */
export async function changedUpTo(call: GitCall, target: string, dots: ".." | "..."): Promise<readonly string[]> {
  const { code } = await call.repository.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
  // Before the first commit there is nothing to compare with
  if (code !== 0) return await namesOf(call, ["ls-tree", "-r", "--name-only", "--full-tree", "-z", target]);
  return await namesOf(call, ["diff", ...NAMES, `HEAD${dots}${target}`, "--"]);
}
