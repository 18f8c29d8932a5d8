import type { CommandContext } from "../command.ts";
import { toTable } from "./terminal_text.ts";

/** Items of a list that a command prints. */
export const MAX_PRINTED = 100;

/** List of the gateway that a command prints as a table. */
export interface PrintedList<T> {
  readonly heads: readonly string[];
  readonly toRow: (item: T) => readonly string[];
  /** Sentence for an empty list */
  readonly none: string;
}

/** Prints the newest items of a list as a table, with --json as they are, and says where there are more. `page`: up to MAX_PRINTED of them */
export async function printPage<T>(
  context: CommandContext,
  page: Promise<{ readonly data: readonly T[]; readonly has_more: boolean }>,
  { heads, toRow, none }: PrintedList<T>,
): Promise<void> {
  const { data, has_more: hasMore } = await page;
  context.print(data, data.length === 0 ? none : toTable(heads, data.map(toRow), context.io.columns));
  if (hasMore) context.say(`These are the newest ${MAX_PRINTED}; there are more.`);
}
