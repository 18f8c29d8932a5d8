import type { CommandContext } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { toTable } from "./terminal_text.ts";

const MAX_SHOWN = 100;

/** List of the gateway that a command prints as a table. */
export interface PrintedList<T> {
  /** With a query or without */
  readonly path: string;
  readonly heads: readonly string[];
  readonly toRow: (item: T) => readonly string[];
  /** Sentence for an empty list */
  readonly none: string;
}

/** Prints the newest items of a list as a table, with --json as they are, and says where there are more. */
export async function printPage<T>(
  context: CommandContext,
  gateway: ReachedGateway,
  { path, heads, toRow, none }: PrintedList<T>,
): Promise<void> {
  const limited = `${path}${path.includes("?") ? "&" : "?"}limit=${MAX_SHOWN}`;
  const { data, has_more: hasMore } = await gateway.request({ method: "GET", path: limited }) as {
    readonly data: readonly T[];
    readonly has_more: boolean;
  };
  context.print(data, data.length === 0 ? none : toTable(heads, data.map(toRow), context.io.columns));
  if (hasMore) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
}
