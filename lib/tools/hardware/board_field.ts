import * as v from "valibot";

/** The name of a configured board, as a tool's input has it. */
export const boardField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Name of a board of the configuration, [hardware.boards.<name>]"),
);
