import { ToolError } from "../../base/errors.ts";
import { withoutEnd } from "../../base/text.ts";
import { maskUserinfo } from "../../system/git/git_process.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { isHidden, linkedOf } from "./checked_names.ts";
import { fromTop, type GitCall, namesOf, pathspecs, succeed, toResult } from "./git_call.ts";
import { parseRevision, resolveCommit } from "./git_input.ts";

/** Options of every command that compares: they run no program of the repository, and give the same output under any configuration */
const COMPARE = [
  ...["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty", "--submodule=short"],
];
const PATCH = [...COMPARE, "--src-prefix=a/", "--dst-prefix=b/"];
/** Names that a command can leave out */
const MAX_LEFT_OUT = 200;

/** Runs `git status`, in short form, with renames and, where all submodules were checked, what changed inside of them. */
export async function status(call: GitCall): Promise<ToolResult> {
  const { submodules } = call.repository;
  const args = [
    "status",
    "--short",
    "--branch",
    "--find-renames",
    `--ignore-submodules=${submodules.isAllowed ? "none" : "dirty"}`,
    "--untracked-files=normal",
  ];
  const { stdout, truncated } = await succeed(call, [...args, "--", ...pathspecs(call)]);
  const result = toResult(stdout, { empty: "nothing to show", truncated });
  if (submodules.isAllowed || submodules.reason === undefined) return result;
  return {
    ...result,
    output: `${result.output}\n[Changes inside of submodules are not shown: ${submodules.reason}]`,
  };
}

/** Runs `git diff`, without hidden files. */
export async function diff(call: GitCall): Promise<ToolResult> {
  const { rev, staged = false } = call.input;
  const compared = [...(staged ? ["--cached"] : []), ...(rev === undefined ? [] : await sides(call, rev))];
  return await withoutHidden(call, {
    names: ["diff", "--name-only", "-z", ...COMPARE, ...compared],
    patch: ["diff", ...PATCH, ...compared],
    empty: "no differences",
    files: true,
  });
}

/** Runs `git show` for a commit, or shows a file as a commit has it. */
export async function show(call: GitCall): Promise<ToolResult> {
  const revision = parseRevision(call.input.rev ?? "HEAD");
  if (revision.kind === "range") throw new TypeError("The input was not checked");
  const commit = await resolveCommit(call.repository, revision.rev);
  if (revision.kind === "file") return await showFile(call, commit, revision.path);
  const shown = ["--first-parent", "-m", commit];
  const format = "--format=commit %H%nAuthor: %an <%ae>%nDate:   %aI%n%n%w(0,4,4)%B";
  return await withoutHidden(call, {
    names: ["show", "--format=", "--name-only", "-z", ...COMPARE, ...shown],
    patch: ["show", "--no-notes", "--no-show-signature", format, ...PATCH, ...shown],
    empty: "no changes",
    files: false,
  });
}

async function showFile(call: GitCall, commit: string, path: string): Promise<ToolResult> {
  const name = fromTop(call.repository, path);
  if (isHidden(call, name, call.allowSensitiveReads)) {
    throw new ToolError(
      "path_sensitive",
      `Cannot show ${JSON.stringify(path)}: it is sensitive or lies in a forbidden path; for the former [autonomy] ` +
        "allow_sensitive_file_reads = true opens it",
    );
  }
  const { stdout, truncated } = await succeed(call, ["cat-file", "-p", `${commit}:${name}`]);
  if (stdout.includes("\0")) throw new ToolError("binary_file", `Cannot show ${JSON.stringify(path)}: it is not text`);
  return toResult(stdout, { empty: "an empty file", truncated });
}

/** Runs `git log`, a line for each commit, or lists the stashes. */
export async function log(call: GitCall): Promise<ToolResult> {
  const { rev, limit = 20 } = call.input;
  const count = `--max-count=${limit}`;
  if (rev === "stash") {
    const { code, stdout } = await call.repository.run(
      ["log", "--walk-reflogs", count, "--no-color", "--format=%gd %as %gs", "refs/stash", "--"],
    );
    return toResult(code === 0 ? stdout : "", { empty: "no stashes" });
  }
  const from = rev === undefined ? ["HEAD"] : await sides(call, rev, "log");
  const format = "--format=%h %as %an: %s%d";
  const args = [
    "log",
    "--no-color",
    "--no-show-signature",
    "--no-notes",
    "--decorate=short",
    format,
    count,
    ...from,
    "--",
  ];
  const unborn = rev === undefined ? await unbornBranch(call) : undefined;
  if (unborn !== undefined) return toResult("", { empty: `no commits yet on branch ${unborn}` });
  const { stdout, truncated } = await succeed(call, [...args, ...pathspecs(call)]);
  return toResult(stdout, { empty: "no commits", truncated });
}

/** Returns the name of the branch that is checked out and has no commit yet. */
async function unbornBranch({ repository }: GitCall): Promise<string | undefined> {
  // A branch whose commit is missing has the name of that commit, and is no unborn one: git itself tells of the damage
  const { code } = await repository.run(["rev-parse", "--quiet", "--verify", "HEAD"]);
  if (code === 0) return undefined;
  const head = await repository.run(["symbolic-ref", "--quiet", "--short", "HEAD"]);
  return head.code === 0 ? head.stdout.trim() : undefined;
}

/** Lists the branches, newest first, and the remotes. */
export async function branch(call: GitCall): Promise<ToolResult> {
  const { limit = 100 } = call.input;
  const head = await call.repository.run(["symbolic-ref", "--quiet", "--short", "HEAD"]);
  const format =
    "--format=%(HEAD) %(refname:short) %(objectname:short) %(upstream:short)%(upstream:track) %(contents:subject)";
  const { stdout, truncated } = await succeed(
    call,
    ["for-each-ref", `--count=${limit}`, "--sort=-committerdate", format, "refs/heads", "refs/remotes"],
  );
  const remotes = [...call.repository.remotes].map(([name, { fetch, push }]) =>
    `remote ${name} ${[...new Set([...fetch, ...push])].map(maskUserinfo).join(" ")}`
  );
  const on = head.code === 0 ? `on branch ${head.stdout.trim()}` : "on no branch";
  return toResult([on, withoutEnd(stdout, "\n"), ...remotes].filter((line) => line !== "").join("\n"), {
    empty: "",
    truncated,
  });
}

/** Returns the commits that `rev` names, as arguments of the command. */
async function sides(call: GitCall, rev: string, command: "diff" | "log" = "diff"): Promise<readonly string[]> {
  const revision = parseRevision(rev);
  if (revision.kind !== "range") return [await resolveCommit(call.repository, revision.rev)];
  const from = await resolveCommit(call.repository, revision.from);
  const to = await resolveCommit(call.repository, revision.to);
  return revision.dots === "..." || command === "log" ? [`${from}${revision.dots}${to}`] : [from, to];
}

/** Returns a patch without sensitive and forbidden files. */
async function withoutHidden(
  call: GitCall,
  commands: {
    readonly names: readonly string[];
    readonly patch: readonly string[];
    readonly empty: string;
    /** True when the command reads files of the working tree */
    readonly files: boolean;
  },
): Promise<ToolResult> {
  const { op } = call.input;
  const specs = pathspecs(call);
  const names = await namesOf(call, [...commands.names, "--", ...specs]);
  const linked = new Set(commands.files ? await linkedOf(call, names) : []);
  const hidden = names.filter((name) => linked.has(name) || isHidden(call, name, call.allowSensitiveReads));
  if (hidden.length > MAX_LEFT_OUT) {
    throw new ToolError(
      "path_sensitive",
      `Cannot run git ${op}: ${hidden.length} of its files are sensitive, forbidden or of several names; name others in "paths"`,
    );
  }
  const excluded = hidden.map((name) => `:(top,exclude,literal)${name}`);
  const { stdout, truncated } = await succeed(call, [...commands.patch, "--", ...specs, ...excluded]);
  return toResult(withoutEmpty(stdout), { empty: commands.empty, truncated, hidden });
}

/** Removes headings without a change below: git prints them for a file with a new time and the same content. */
function withoutEmpty(patch: string): string {
  return patch.split("\n").filter((line, at, lines) => {
    const next = lines[at + 1] ?? "";
    return !line.startsWith("diff --git ") || !(next === "" || next.startsWith("diff --git "));
  }).join("\n");
}
