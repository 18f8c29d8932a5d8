import { closeSync, constants, openSync, readlinkSync } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { createTemporaryNames, type TemporaryNames } from "../../base/durable_files.ts";
import { ToolError } from "../../base/errors.ts";
import { createSystemRandom, type Random } from "../../base/random.ts";
import { createFileChanges } from "./change_files.ts";
import { notAFile, notAFolder } from "./file_error.ts";
import type { FileLocks, Files, FileScope, FilesSetup } from "./files.ts";
import { parsePath, shown } from "./parse_path.ts";
import { loadPathRules } from "./path_rules.ts";
import type { Reach } from "./reach.ts";
import { createReachByChecks } from "./reach_by_checks.ts";
import { createReachByHandles } from "./reach_by_handles.ts";
import { blockingCalls, waitingCalls } from "./system_calls.ts";
import { readIgnores, walkFolder } from "./walk_folder.ts";

/** Settings and services of a door to files. */
export interface FilesOptions extends Omit<FilesSetup, "variant"> {
  readonly clock: Clock;
  /** For the names of temporary files. Default: the operating system's */
  readonly random?: Random;
  /** Default: `handles` where the platform has them */
  readonly variant?: FilesSetup["variant"];
  /** For a thread that does nothing else: system calls stop it until the disk answers. Default false */
  readonly blocking?: boolean;
  /** Locks of files that other gateways change too. Default: none do */
  readonly locks?: FileLocks | undefined;
}

/** Creates the one door to files for tools. Looks once which variant the platform can do. */
export function createFiles(options: FilesOptions): Files {
  const variant = options.variant ?? (hasFolderHandles() ? "handles" : "checked");
  const reach: Reach = variant === "handles"
    ? createReachByHandles(options.blocking === true ? blockingCalls : waitingCalls)
    : createReachByChecks(options.clock);
  const openFile = async (names: readonly string[], scope: FileScope) => {
    const reached = await reach(names, await loadPathRules(scope, options));
    if (reached.kind === "file") return reached.file;
    await reached.folder.close();
    throw notAFile(names.join("/") || ".");
  };
  const changes = createFileChanges({
    reach,
    rulesOf: (scope) => loadPathRules(scope, { ...options, writing: true }),
    names: temporaryNames(options),
    locks: options.locks,
  });
  return {
    variant,
    setup: { home: options.home, ownPaths: options.ownPaths, variant },
    ...changes,
    async open(path, scope) {
      const { names, folder } = parsePath(path);
      if (folder && names.length > 0) {
        throw new ToolError("not_a_file", `Cannot open ${shown(path)}: a path that ends with a slash names a folder`);
      }
      return await openFile(names, scope);
    },
    async names(path, scope, limit) {
      const reached = await reach(parsePath(path).names, await loadPathRules(scope, options));
      if (reached.kind === "file") {
        await reached.file.close();
        throw notAFolder(path);
      }
      try {
        const { folders, files, others, truncated } = await reached.folder.list(limit);
        return truncated ? undefined : [...folders, ...files, ...others];
      } finally {
        await reached.folder.close();
      }
    },
    async *walk(path, scope, walkOptions) {
      const { names } = parsePath(path);
      const rules = await loadPathRules(scope, options);
      const reached = await reach(names, rules);
      if (reached.kind === "file") {
        await reached.file.close();
        yield [{ path: names.join("/"), below: names.at(-1) ?? "", open: () => openFile(names, scope) }];
        return { truncated: false };
      }
      const { folder } = reached;
      const above = walkOptions.respectGitignore ? folder.names : [];
      const ignores = () =>
        Promise.all(above.map((_, depth) => {
          return readIgnores(() => openFile([...above.slice(0, depth), ".gitignore"], scope), depth);
        }));
      return yield* walkFolder(folder, { ...walkOptions, rules, ignores, clock: options.clock });
    },
  };
}

/** Age at which a temporary file of another machine, whose processes are not known here, was left behind. Milliseconds */
const LEFT_MS = 60 * 60 * 1000;

function temporaryNames({ clock, random = createSystemRandom(), locks }: FilesOptions): TemporaryNames {
  const names = createTemporaryNames({ clock, random });
  if (locks === undefined) return names;
  const isOld = (modifiedMs: number) => !locks.isShared() || modifiedMs < clock.now() - LEFT_MS;
  return {
    next: () => names.next(),
    isLeftover: (name, modifiedMs) => isOld(modifiedMs) && names.isLeftover(name, modifiedMs),
  };
}

/** Linux with `/proc`, and on Deno all permissions: narrower ones refuse `/proc` and drop O_NOFOLLOW silently. */
function hasFolderHandles(): boolean {
  if (process.platform !== "linux") return false;
  try {
    const folder = openSync("/", constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      return readlinkSync(`/proc/self/fd/${folder}`) === "/";
    } finally {
      closeSync(folder);
    }
  } catch {
    return false;
  }
}
