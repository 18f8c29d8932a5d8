import type { ToolResult } from "../runtime/tool.ts";
import type { BoardContext } from "./boards.ts";
import { rangeOf, toHex } from "./memory_map.ts";
import { usableMap } from "./usable_map.ts";

/** @throws {ToolError} those of usableMap and Boards */
export async function showMemoryMap(board: string, { boards, config, signal }: BoardContext): Promise<ToolResult> {
  const map = await boards.attach(board, signal, (target) => usableMap(target, { board, config }));
  const lines = map.regions.map((region) => `${rangeOf(region)}  ${region.length} bytes  ${region.name}`);
  const regions = map.regions.map(({ name, start, length }) => ({ name, start: toHex(start), length: toHex(length) }));
  const nothing = "Nothing is in both the target's map and the configured one";
  return {
    output: [`Memory map of "${board}", from the ${map.source}:`, ...lines.length === 0 ? [nothing] : lines].join("\n"),
    isError: false,
    data: { board, source: map.source, regions },
  };
}
