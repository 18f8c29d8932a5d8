import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { configuredBoard } from "./configured_board.ts";
import type { GdbTarget } from "./gdb_target.ts";
import { configuredMap, inBoth, type MemoryRegion } from "./memory_map.ts";

/** What of a board may be read, by address, and who says so. */
export interface UsableMap {
  readonly source: "target" | "configuration" | "target and configuration";
  readonly regions: readonly MemoryRegion[];
}

/**
 * The target's own map, or the configured one where it has none; where there are both, what is in both: a stub may offer the whole
 * address space, and the operator leave out what must not be touched, as registers that change when they are read.
 * @throws {ToolError} `no_memory_map`
 */
export async function usableMap(
  target: Pick<GdbTarget, "memoryMap">,
  { board, config }: { readonly board: string; readonly config: Pick<Config, "hardware"> },
): Promise<UsableMap> {
  const configured = configuredMap(configuredBoard(config, board).memory_map);
  const own = await target.memoryMap() ?? [];
  if (own.length > 0 && configured.length > 0) {
    return { source: "target and configuration", regions: inBoth(own, configured) };
  }
  if (own.length > 0) return { source: "target", regions: own };
  if (configured.length > 0) return { source: "configuration", regions: configured };
  throw new ToolError(
    "no_memory_map",
    `Cannot tell the memory map of board "${board}": its GDB stub has none; a person adds hardware.boards.${board}.memory_map`,
  );
}
