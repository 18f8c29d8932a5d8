import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";

/** Field for the name of a configured board. */
export const boardField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Name of a board of the configuration, [hardware.boards.<name>]"),
);

/**
 * `hardware_board_info`: describes a board: architecture, registers and stub. Without a name describes the only configured board, or the
 * machine that the gateway runs on when none is configured (docs/design/tools.md "Hardware").
 */
export const hardwareBoardInfo = defineTool({
  name: "hardware_board_info",
  description:
    "Says what a board is: architecture, features, registers and its GDB stub; the board is halted for a moment. Without a configured board it describes the machine this runs on",
  access: "read",
  enabled: "always",
  needs: ["boards"],
  input: v.strictObject({ board: v.optional(boardField) }),
  textField: "board",
  async run({ board }, { services: { boards }, config, signal }) {
    const { describeBoard } = await import("./board_answers.ts");
    return await describeBoard(board, { boards, config, signal });
  },
});
