import { basename } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { nearest } from "../../config/nearest.ts";
import type { FoundSop, LoadedSops } from "./load_definitions.ts";

/**
 * The definition of this id.
 * @throws {ToolError} `sop_invalid` with what is wrong with the file of that name, `not_found` with what there is
 */
export function findSop(id: string, { sops, invalid }: LoadedSops): FoundSop {
  const found = sops.find(({ definition }) => definition.id === id);
  if (found !== undefined) return found;
  const file = invalid.find(({ file }) => basename(file).replace(/\.(toml|md)$/, "") === id);
  if (file !== undefined) {
    throw new ToolError("sop_invalid", file.problems.map(({ message }) => message).join("\n"));
  }
  const ids = sops.map(({ definition }) => definition.id);
  const near = nearest(id, ids);
  const hint = near === undefined
    ? ids.length === 0
      ? "there are none; a file in {data_dir}/sops makes one"
      : `there are ${ids.slice(0, 20).map((known) => `"${known}"`).join(", ")}`
    : `did you mean "${near}"?`;
  throw new ToolError("not_found", `Cannot find the procedure ${JSON.stringify(id.slice(0, 64))}: ${hint}`);
}
