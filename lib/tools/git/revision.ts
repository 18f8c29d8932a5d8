import { ToolError } from "../../base/errors.ts";
import { parsePath } from "../../system/files/parse_path.ts";
import type { Repository } from "../../system/git/git.ts";

/** Meaning of `rev`: a commit, a range between two commits, or a file in a commit. */
export type Revision =
  | { readonly kind: "commit"; readonly rev: string }
  | { readonly kind: "range"; readonly from: string; readonly to: string; readonly dots: ".." | "..." }
  | { readonly kind: "file"; readonly rev: string; readonly path: string };

/** Names of commits: no options, no search by text or regular expression, no path of the index */
const COMMIT = /^[\p{L}\p{N}_@][\p{L}\p{N}_@.\/+#=~^-]*(?:@\{-?[\p{L}\p{N}. :-]{1,40}\})?[~^\p{N}]*$/u;
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
  if (text.length <= MAX_LENGTH && COMMIT.test(rev) && !rev.includes("..")) return rev;
  throw new ToolError(
    "invalid_input",
    `Cannot call "git_operations": "rev" ${
      JSON.stringify(text.slice(0, 80))
    } names no commit; give one as HEAD~1, a branch, ` +
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
