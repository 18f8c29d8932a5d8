import { CommandError, defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";

/** Command `postern notify test <name>` */
export const notifyTestCommand = defineCliCommand({
  args: { name: { type: "positional", required: true, description: "Name of a rule of [[notify]]" } },
  example: "postern notify test phone",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      const { delivered, reason } = await gateway.call("POST /v1/notify/:name/test", { params: { name } });
      if (!delivered) throw new CommandError(`Cannot deliver a message by the rule "${name}": ${reason}`);
      context.print({ delivered }, "It was taken: see that it has arrived");
    }),
});
