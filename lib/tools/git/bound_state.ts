import { canonicalDigest } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import type { BoundState } from "../../base/records/approval.ts";
import { shown } from "../../system/files/parse_path.ts";
import { maskUserinfo } from "../../system/git/git_process.ts";
import type { BoundParts } from "../runtime/tool.ts";
import { OPERATIONS } from "./git_input.ts";
import { type GitCall, MAX_INDEX_BYTES, namesOf, pathspecs, succeed } from "./git_call.ts";

/** Files whose content is read for one call */
const MAX_FILES = 20_000;
/** Files read at once */
const WIDTH = 8;
/** Character that is in a listed name for bytes that are no UTF-8 */
const REPLACEMENT = "\ufffd";

const TRACKED = ["--modified", "--deleted"];
const UNTRACKED = ["--others", "--exclude-standard"];

/**
 * Returns the state that a changing operation would use: the commit it starts from, the index, the files that it takes from the working
 * tree, the commit that `rev` names, and the address of a remote. Changes nothing.
 * @throws {ToolError} `git_too_large`, `path_invalid`, and those of `Repository.run`
 */
export async function boundState(call: GitCall): Promise<BoundParts> {
  const { op, paths, rev, branch, staged = false, remote } = call.input;
  const head = () => headOf(call);
  const files = (kinds: readonly string[]) => filesOf(call, kinds);
  switch (op) {
    case "add":
      return bound(call, [await head(), await indexOf(call), await files([...TRACKED, ...UNTRACKED])]);
    case "commit":
      return bound(call, [await head(), await indexOf(call), ...(paths === undefined ? [] : [await files(TRACKED)])]);
    case "stash":
      return bound(call, [
        await head(),
        await indexOf(call),
        await files(TRACKED),
        ...(rev === undefined ? [] : [await commitOf(call, rev)]),
      ]);
    case "checkout":
      return bound(call, [
        await head(),
        await indexOf(call),
        ...(paths === undefined || staged ? [] : [await files(TRACKED)]),
        ...(rev === undefined ? [] : [await commitOf(call, rev)]),
        ...(branch === undefined ? [] : [await commitOf(call, `refs/heads/${branch}`)]),
      ]);
    case "push":
      return bound(call, [
        await head(),
        remoteOf(call, remote ?? "origin", "push"),
        ...(branch === undefined ? [] : [await commitOf(call, `refs/heads/${branch}`)]),
      ]);
    case "pull":
      return bound(call, [
        await head(),
        await indexOf(call),
        await files(TRACKED),
        remoteOf(call, remote ?? "origin", "fetch"),
      ]);
    default:
      return bound(call, []);
  }
}

function bound({ input, repository }: GitCall, shown: readonly BoundState[]): BoundParts {
  // An operation with a remote has no folder: its effect is not in a folder
  if (OPERATIONS[input.op].access !== "write") return { shown };
  return { shown, folder: repository.folder === "" ? "." : repository.folder };
}

/** Returns the checked-out branch with its commit; before the first commit there is no commit. */
async function headOf(call: GitCall): Promise<BoundState> {
  const branch = await call.repository.run(["symbolic-ref", "--quiet", "HEAD"]);
  const name = branch.code === 0 ? branch.stdout.trim() : "HEAD";
  const commit = await commitNamed(call, "HEAD");
  return { kind: "head", name, sha256: canonicalDigest({ name, commit }) };
}

async function commitOf(call: GitCall, rev: string): Promise<BoundState> {
  const commit = await commitNamed(call, rev);
  return { kind: "commit", name: rev, sha256: commit === null ? null : canonicalDigest({ commit }) };
}

/** Returns the full hash. null when the name stands for no commit. */
async function commitNamed(call: GitCall, rev: string): Promise<string | null> {
  const args = ["rev-parse", "--verify", "--quiet", "--end-of-options", `${rev}^{commit}`];
  const { code, stdout } = await call.repository.run(args);
  return code === 0 ? stdout.trim() : null;
}

/** Returns mode, object and stage of every file in the index: the content of the next commit. */
async function indexOf(call: GitCall): Promise<BoundState> {
  const { stdout, truncated } = await succeed(call, ["ls-files", "--stage", "-z"], { maxOutputBytes: MAX_INDEX_BYTES });
  if (truncated) throw tooLarge(call, "the index is too large to be looked at");
  return { kind: "index", name: "index", sha256: canonicalDigest({ stdout }) };
}

/** Returns the files that differ from the index, with their content on disk now. */
async function filesOf(call: GitCall, kinds: readonly string[]): Promise<BoundState> {
  const names = [...await namesOf(call, ["ls-files", "-z", ...kinds, "--full-name", "--", ...pathspecs(call)])].sort();
  if (names.length > MAX_FILES) {
    throw tooLarge(call, `it is about more than ${MAX_FILES} files; name fewer in "paths"`);
  }
  // A file with such a name cannot be opened, and looks like other such files: somebody could replace it after the approval
  const unnamable = names.find((name) => name.includes(REPLACEMENT));
  if (unnamable !== undefined) throw notUtf8(call, unnamable);
  const states: unknown[] = [];
  for (let at = 0; at < names.length; at += WIDTH) {
    const some = names.slice(at, at + WIDTH);
    states.push(...await Promise.all(some.map(async (name) => ({ name, ...await call.repository.stateOf(name) }))));
  }
  const { path = ".", paths } = call.input;
  const where = (paths ?? ["."]).map((each) => (path === "." ? each : `${path}/${each}`)).join(", ");
  return { kind: "files", name: `${where} (${names.length} changed)`, sha256: canonicalDigest({ states }) };
}

function remoteOf({ repository }: GitCall, name: string, direction: "fetch" | "push"): BoundState {
  const urls = repository.remotes.get(name)?.[direction] ?? [];
  const shown = urls.map((url) => maskUserinfo(url)).join(", ");
  return {
    kind: "remote",
    name: `${name} ${shown}`.trimEnd(),
    sha256: urls.length === 0 ? null : canonicalDigest({ urls }),
  };
}

function notUtf8({ input }: GitCall, name: string): ToolError {
  return new ToolError(
    "path_invalid",
    `Cannot ask about git ${input.op}: the name of ${
      shown(name)
    } is not UTF-8, so that its content cannot be looked at; ` +
      'rename it, or name other files in "paths"',
  );
}

function tooLarge({ input }: GitCall, why: string): ToolError {
  return new ToolError("git_too_large", `Cannot ask about git ${input.op}: ${why}`);
}
