import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { boardField } from "./hardware_board_info.ts";

const DEFAULT_LENGTH = 256;
const MAX_LENGTH = 16_384;

/** `hardware_memory_read`: reads bytes of a board's memory, only inside its memory map (docs/design/tools.md "Hardware"). */
export const hardwareMemoryRead = defineTool({
  name: "hardware_memory_read",
  description:
    "Reads memory of a board as a hex dump, inside the regions of hardware_memory_map alone. The board is halted for a moment",
  access: "read",
  enabled: "always",
  needs: ["boards"],
  input: v.strictObject({
    board: boardField,
    address: v.pipe(
      v.string(),
      v.regex(/^(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})$/),
      v.description("First address: hexadecimal as 0x20000000, or decimal"),
    ),
    length: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(1),
        v.maxValue(MAX_LENGTH),
        v.description(`Number of bytes, ${DEFAULT_LENGTH} when left out`),
      ),
    ),
  }),
  async run({ board, address, length = DEFAULT_LENGTH }, { services: { boards }, config, signal }) {
    const { readBoardMemory } = await import("./board_answers.ts");
    return await readBoardMemory({ board, start: BigInt(address), length }, { boards, config, signal });
  },
});
