import { realpath } from "node:fs/promises";
import { basename, join, resolve, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { isTemporary } from "../../base/durable_files.ts";
import type { FileScope } from "./files.ts";
import { INSTRUCTION_FILES, isProtected, isWithin, loadForbiddenBy } from "./forbidden_paths.ts";
import { fileError } from "./file_error.ts";
import { shown } from "./parse_path.ts";
import { isSensitive } from "./sensitive_files.ts";

/** Rules for the paths that one call may open, with every name resolved on the disk. */
export interface PathRules {
  /** Real path of the allowed root */
  readonly root: string;
  /** The allowed root as configured, for absolute links that were made with it */
  readonly namedRoot: string;
  /** Why a path below the root is refused by name, undefined when it is not */
  refusal(names: readonly string[]): ToolError | undefined;
  /** Refusal of a file that holds a private key, by its path; undefined where such files may be opened */
  readonly keyRefusal: ((path: string) => ToolError) | undefined;
}

/** Loads the rules for the paths of a call. @throws {ToolError} when the allowed root cannot be resolved, or one of the workspace leads out of it */
export async function loadPathRules(scope: FileScope, options: {
  readonly home: string;
  /** Postern's own data directory and configuration file, absolute */
  readonly ownPaths: readonly string[];
  /** For a change: names that no file tool may write are refused too. Default false */
  readonly writing?: boolean;
}): Promise<PathRules> {
  const namedRoot = resolve(scope.workspaceRoot, scope.allowedRoot);
  const [root, workspaceRoot, forbiddenBy] = await Promise.all([
    realpath(namedRoot).catch((error: unknown) => {
      throw fileError("open the allowed root", namedRoot, error);
    }),
    realpath(scope.workspaceRoot).catch(() => scope.workspaceRoot),
    loadForbiddenBy(scope, options),
  ]);
  const isInside = isWithin(root, workspaceRoot);
  // Whoever works in the workspace can put a link in the place of a folder there
  if (!isInside && [resolve(scope.workspaceRoot), workspaceRoot].some((folder) => isWithin(namedRoot, folder))) {
    throw new ToolError(
      "path_outside_root",
      `Cannot open the allowed root ${
        shown(namedRoot)
      }: it leads out of the workspace; allowed_root needs the real path of a folder outside`,
    );
  }
  const aboveRoot = isInside ? root.slice(workspaceRoot.length).split(sep).filter((name) => name !== "") : [];
  const topName = basename(isInside ? workspaceRoot : root);
  const [verb, setting] = options.writing
    ? ["write", "allow_sensitive_file_writes"] as const
    : ["open", "allow_sensitive_file_reads"] as const;
  return {
    root,
    namedRoot,
    keyRefusal: scope.allowSensitive ? undefined : (path) =>
      new ToolError(
        "path_sensitive",
        `Cannot ${verb} ${shown(path)}: it holds a private key; [autonomy] ${setting} = true opens such files`,
      ),
    refusal(names) {
      const by = forbiddenBy(join(root, ...names));
      const path = () => shown(names.length === 0 ? "." : names.join("/"));
      if (by !== undefined) {
        return new ToolError(
          "path_forbidden",
          `Cannot ${verb} ${path()}: it lies in the forbidden path "${by}"; name another file`,
        );
      }
      if (names.some(isTemporary)) {
        return new ToolError(
          "path_protected",
          `Cannot ${verb} ${path()}: it is a temporary file of a change in progress`,
        );
      }
      if (options.writing && isProtected([...aboveRoot, ...names])) {
        return new ToolError(
          "path_protected",
          `Cannot write ${path()}: postern.toml, .git, .agents, .claude, .plugins, plugins, .postern and files that instruct agents (${
            INSTRUCTION_FILES.join(", ")
          }) are not for the file tools to change; a person can, in an editor`,
        );
      }
      if (scope.allowSensitive || !isSensitive([...aboveRoot, ...names], topName)) return undefined;
      return new ToolError(
        "path_sensitive",
        `Cannot ${verb} ${path()}: files of this name hold credentials; [autonomy] ${setting} = true opens them`,
      );
    },
  };
}
