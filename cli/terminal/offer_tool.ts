import type { ToolSwitch } from "../../lib/tools/runtime/tool_policy.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";

/** Tool that is off, with the key that turns it on. */
export type OffTool = ToolSwitch & { readonly tool: string };

/** Asks the person at the terminal whether a tool is turned on for good. Asks nobody with --json. @returns true when it is on now */
export async function offerTool(
  { io, flags, say }: CommandContext,
  gateway: ReachedGateway,
  { tool, key, value }: OffTool,
): Promise<boolean> {
  if (flags.json || !io.canAsk) return false;
  const answer = await io.ask(`Turn ${tool} on for good (${key} = ${value})? [y/N] `);
  if (!/^\s*y(es)?\s*$/i.test(answer ?? "")) return false;
  try {
    await gateway.request({ method: "POST", path: `/v1/tools/${encodeURIComponent(tool)}/enable` });
    return true;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    say(error.message);
    return false;
  }
}
