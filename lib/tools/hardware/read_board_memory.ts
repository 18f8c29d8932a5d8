import { ToolError } from "../../base/errors.ts";
import type { ToolResult } from "../runtime/tool.ts";
import type { BoardContext } from "./boards.ts";
import { hexDump } from "./hex_dump.ts";
import { describeMap, firstOutside, rangeOf, toHex } from "./memory_map.ts";
import { usableMap } from "./usable_map.ts";

export interface MemoryRange {
  readonly board: string;
  readonly start: bigint;
  /** Bytes */
  readonly length: number;
}

/** @throws {ToolError} `address_outside_map` with the map's ranges, and those of usableMap and Boards */
export async function readBoardMemory(
  { board, start, length }: MemoryRange,
  { boards, config, signal }: BoardContext,
): Promise<ToolResult> {
  const bytes = await boards.attach(board, signal, async (target) => {
    const { regions, source } = await usableMap(target, { board, config });
    const outside = firstOutside(regions, start, length);
    if (outside === undefined) return await target.readMemory(start, length);
    const range = rangeOf({ start, length: BigInt(length) });
    throw new ToolError(
      "address_outside_map",
      `Cannot read ${range} of board "${board}": ${toHex(outside)} is outside its memory map (${source}), which has ${
        describeMap(regions) || "nothing"
      }`,
    );
  });
  return {
    output: hexDump(bytes, start),
    isError: false,
    data: { board, address: toHex(start), length, hex: Buffer.from(bytes).toString("hex") },
  };
}
