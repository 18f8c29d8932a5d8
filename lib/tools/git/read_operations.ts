import { ToolError } from "../../base/errors.ts";
import { maskUserinfo } from "../../system/git/mask_userinfo.ts";
import type { ToolResult } from "../runtime/tool.ts";
import { isHidden, linkedOf } from "./checked_names.ts";
import { fromTop, type GitCall, namesOf, pathspecs, succeed, toResult } from "./git_call.ts";
import { parseRevision, resolveCommit } from "./revision.ts";

/** Of every command that compares: no program of the repository, the same output whatever is configured */
const COMPARE = [
  ...["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty", "--submodule=short"],
];
const PATCH = [...COMPARE, "--src-prefix=a/", "--dst-prefix=b/"];
/** More names than this are no longer left out one by one */
const MAX_LEFT_OUT = 200;

export async function status(call: GitCall): Promise<ToolResult> {
  const args = [
    "status",
    "--short",
    "--branch",
    "--no-renames",
    "--ignore-submodules=dirty",
    "--untracked-files=normal",
  ];
  const { stdout, truncated } = await succeed(call, [...args, "--", ...pathspecs(call)]);
  return toResult(stdout, { empty: "nothing to show", truncated });
}

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
  const { stdout, truncated } = await succeed(call, [...args, ...pathspecs(call)]);
  return toResult(stdout, { empty: "no commits", truncated });
}

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
  return toResult([on, stdout.replace(/\n+$/, ""), ...remotes].filter((line) => line !== "").join("\n"), {
    empty: "",
    truncated,
  });
}

/** The commits that `rev` names, as the command takes them. */
async function sides(call: GitCall, rev: string, command: "diff" | "log" = "diff"): Promise<readonly string[]> {
  const revision = parseRevision(rev);
  if (revision.kind !== "range") return [await resolveCommit(call.repository, revision.rev)];
  const from = await resolveCommit(call.repository, revision.from);
  const to = await resolveCommit(call.repository, revision.to);
  return revision.dots === "..." || command === "log" ? [`${from}${revision.dots}${to}`] : [from, to];
}

/** A patch without the files that are sensitive or forbidden. */
async function withoutHidden(
  call: GitCall,
  commands: {
    readonly names: readonly string[];
    readonly patch: readonly string[];
    readonly empty: string;
    /** Reads the files of the working tree */
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

/** Files whose time alone has changed have a heading and nothing below it: the index is not refreshed. */
function withoutEmpty(patch: string): string {
  return patch.split("\n").filter((line, at, lines) => {
    const next = lines[at + 1] ?? "";
    return !line.startsWith("diff --git ") || !(next === "" || next.startsWith("diff --git "));
  }).join("\n");
}
