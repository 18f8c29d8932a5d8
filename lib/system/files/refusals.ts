import { ToolError } from "../../base/errors.ts";
import { shown } from "./parse_path.ts";

/** A folder, FIFO, socket or device where a file is wanted. */
export function notAFile(path: string, action = "open"): ToolError {
  return new ToolError("not_a_file", `Cannot ${action} ${shown(path)}: it is not a regular file`);
}

/** A file where a folder is wanted. */
export function notAFolder(path: string, action = "open"): ToolError {
  return new ToolError("not_a_folder", `Cannot ${action} ${shown(path)}: it is not a folder`);
}

/** A file with several names may be one that lies outside. */
export function linkedFile(path: string, action: "read" | "write" = "read"): ToolError {
  return new ToolError(
    "hard_link",
    `Cannot ${action === "read" ? "open" : action} ${
      shown(path)
    }: it has more than one hard link, copy it to ${action} it`,
  );
}

/** A path that a symbolic link leads out of the root. */
export function outsideRoot(path: string): ToolError {
  return new ToolError("path_outside_root", `Cannot open ${shown(path)}: it resolves outside the allowed root`);
}
