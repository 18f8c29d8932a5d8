import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { boardField } from "./hardware_board_info.ts";

/** `hardware_memory_map`: shows which memory of a board may be read (docs/design/tools.md "Hardware"). */
export const hardwareMemoryMap = defineTool({
  name: "hardware_memory_map",
  description:
    "Gives the memory map of a board: its regions with first and last address. The board is halted for a moment",
  access: "read",
  enabled: "always",
  needs: ["boards"],
  input: v.strictObject({ board: boardField }),
  textField: "board",
  async run({ board }, { services: { boards }, config, signal }) {
    const { showMemoryMap } = await import("./board_answers.ts");
    return await showMemoryMap(board, { boards, config, signal });
  },
});
