import { lazyService } from "../base/lazily.ts";
import { BUILTIN_TOOLS } from "./builtin.ts";
import { createToolExecutor, type ToolExecutorOptions } from "./runtime/create_tool_executor.ts";
import { createDrainableExecutor, type DrainableExecutor } from "./runtime/drainable_executor.ts";
import type { ToolServices } from "./runtime/tool.ts";

/** Options of `createTools`. */
export interface ToolsOptions extends Omit<ToolExecutorOptions, "tools" | "services"> {
  /** Services of the other wings. */
  readonly services: Omit<ToolServices, "boards" | "catalogue">;
}

/** Creates the executor of the built-in tools and of those of other machines. The access to boards is loaded at its first use. */
export function createTools(options: ToolsOptions): DrainableExecutor {
  const { clock, config } = options;
  const boards = lazyService(async () => {
    const { createBoards } = await import("../hardware/boards.ts");
    return createBoards({ config, clock });
  }, ["attach", "host"]);
  const executor = createToolExecutor({ ...options, tools: BUILTIN_TOOLS, services: { ...options.services, boards } });
  return createDrainableExecutor(executor, { clock });
}
