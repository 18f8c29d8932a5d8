import { realpath } from "node:fs/promises";
import { relative } from "node:path";
import { type FileState, fileState } from "../files/file_state.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { candidatesOf, realPathOf } from "./screen_arguments.ts";

/** A place of the workspace that an argument names, with what lies there. */
export interface NamedFile extends FileState {
  /** Relative to the workspace, links resolved */
  readonly path: string;
}

/**
 * Looks at every file of the workspace that the arguments of a command name, by the rules that the arguments are screened by: also
 * glued to an option, and through links. A name where nothing lies is among them, so that what appears there is noticed.
 * @returns in the order of the paths, each once
 * @throws {CancelError} when the signal aborts
 */
export async function namedFiles(
  args: readonly string[],
  { workspaceRoot, signal }: { readonly workspaceRoot: string; readonly signal: AbortSignal },
): Promise<readonly NamedFile[]> {
  const workspace = await realpath(workspaceRoot);
  const places = new Set<string>();
  for (const arg of args) {
    for (const candidate of candidatesOf(arg)) {
      const place = await realPathOf(candidate, workspace);
      if (isWithin(place, workspace)) places.add(place);
    }
  }
  const found: NamedFile[] = [];
  for (const place of [...places].sort()) {
    found.push({ path: relative(workspace, place) || ".", ...await fileState(place, signal) });
  }
  return found;
}
