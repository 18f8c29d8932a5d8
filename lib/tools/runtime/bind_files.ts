import { ToolError } from "../../base/errors.ts";
import type { Files } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { CallBinding } from "./bind_call.ts";

/**
 * The files of one approved call: it changes exactly those that were approved, as they were then. What is written between the
 * last look and the change is refused, since `change` replaces nothing but the version it is given.
 */
export function bindFiles(files: Files, versions: CallBinding["versions"]): Files {
  return {
    ...files,
    async change(changes, scope, options) {
      for (const { path, expected } of changes) {
        if (versions.has(path) && versions.get(path) === expected) continue;
        throw new ToolError(
          "path_changed",
          `Cannot change ${shown(path)}: it is not what it was when the call was approved; look again and ask anew`,
        );
      }
      await files.change(changes, scope, options);
    },
  };
}
