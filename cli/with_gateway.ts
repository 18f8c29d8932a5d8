import type { CommandContext } from "./command.ts";
import { EXIT } from "./exit_codes.ts";
import { type ReachedGateway, reachGateway } from "./reach_gateway.ts";

/** Runs a command that needs no agent with the gateway, and leaves it afterwards. @returns exit code 0 */
export async function withGateway(
  context: CommandContext,
  work: (gateway: ReachedGateway) => Promise<void>,
): Promise<number> {
  const gateway = await reachGateway(context, { agent: false });
  try {
    await work(gateway);
    return EXIT.ok;
  } finally {
    await gateway.close();
  }
}
