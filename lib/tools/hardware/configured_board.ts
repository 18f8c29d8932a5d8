import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";

/** A board of `[hardware.boards.<name>]`. @throws {ToolError} `unknown_board`, naming those there are */
export function configuredBoard(
  { hardware }: Pick<Config, "hardware">,
  name: string,
): Config["hardware"]["boards"][string] {
  const board = Object.hasOwn(hardware.boards, name) ? hardware.boards[name] : undefined;
  if (board !== undefined) return board;
  const names = Object.keys(hardware.boards);
  const known = names.length === 0
    ? "none is configured; a person adds one as [hardware.boards.<name>] with gdb_remote"
    : `the configured ones are ${names.map((known) => `"${known}"`).join(", ")}`;
  throw new ToolError("unknown_board", `Cannot use board "${name}": ${known}`);
}
