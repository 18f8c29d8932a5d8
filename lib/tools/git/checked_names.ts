import { ToolError } from "../../base/errors.ts";
import { listSome } from "../../base/text.ts";
import { isSensitive } from "../../system/files/sensitive_files.ts";
import { fieldsOf, type GitCall, MAX_NAMES_SHOWN } from "./git_call.ts";

/** Names that are given to one command */
const BATCH = 200;

/** Tells whether a file may be neither shown, stored nor overwritten. @param path relative to the top of the repository */
export function isHidden({ repository }: GitCall, path: string, allowSensitive: boolean): boolean {
  if (repository.forbiddenBy(path) !== undefined) return true;
  return !allowSensitive && isSensitive([...repository.folder.split("/"), ...path.split("/")]);
}

/** Returns the files that have more than one hard link: their content may come from outside the workspace. */
export async function linkedOf({ repository }: GitCall, names: readonly string[]): Promise<readonly string[]> {
  const linked = await Promise.all(names.map(async (name) => (await repository.isLinked(name)) ? [name] : []));
  return linked.flat();
}

/**
 * Refuses a call that would store a protected file of the working tree in the repository.
 * @throws {ToolError} `path_sensitive`, `path_forbidden`, `hard_link`, `git_filter`
 */
export async function requireStorable(call: GitCall, names: readonly string[]): Promise<void> {
  requireOpen(call, names, { does: "store", allowSensitive: call.allowSensitiveReads });
  const [linked] = await linkedOf(call, names);
  if (linked !== undefined) {
    throw new ToolError(
      "hard_link",
      `${would(call, "store", [linked])}, which has more than one hard link; copy it first`,
    );
  }
  await requireUnfiltered(call, names);
}

/**
 * Refuses a call that would overwrite a protected file of the working tree.
 * @throws {ToolError} `path_sensitive`, `path_forbidden`, `git_filter`
 */
export async function requireOverwritable(call: GitCall, names: readonly string[]): Promise<void> {
  requireOpen(call, names, { does: "overwrite", allowSensitive: call.allowSensitiveWrites });
  await requireUnfiltered(call, names);
}

function requireOpen(
  call: GitCall,
  names: readonly string[],
  { does, allowSensitive }: { readonly does: "store" | "overwrite"; readonly allowSensitive: boolean },
): void {
  const hidden = names.filter((name) => isHidden(call, name, allowSensitive));
  if (hidden.length === 0) return;
  const head = would(call, does, hidden);
  const forbidden = hidden.map((name) => call.repository.forbiddenBy(name)).find((by) => by !== undefined);
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

/**
 * Refuses files that a filter of the user's configuration handles, as Git LFS. That configuration is off here, so git would store other
 * bytes.
 */
async function requireUnfiltered(call: GitCall, names: readonly string[]): Promise<void> {
  const { userFilters } = call.repository;
  if (userFilters.size === 0) return;
  for (let at = 0; at < names.length; at += BATCH) {
    const listed = await fieldsOf(call, ["check-attr", "-z", "filter", "--", ...names.slice(at, at + BATCH)]);
    // Three fields for each file: path, attribute, value
    for (let field = 0; field + 2 < listed.length; field += 3) {
      const [path = "", filter = ""] = [listed[field], listed[field + 2]];
      if (!userFilters.has(filter)) continue;
      throw new ToolError(
        "git_filter",
        `${
          would(call, "pass", [path])
        } by the filter "${filter}", which is not run here; run git yourself for such files`,
      );
    }
  }
}

function would({ input }: GitCall, does: string, names: readonly string[]): string {
  const shown = listSome(names.map((name) => JSON.stringify(name)), MAX_NAMES_SHOWN);
  return `Cannot run git ${input.op}: it would ${does} ${shown}`;
}
