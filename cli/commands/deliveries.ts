import { DELIVERY_STATUSES, type DeliveryAction } from "../../lib/automation/channels/delivery_record.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

const ID = { type: "positional", required: true, description: "Id of the run, from postern deliveries list" } as const;
const MAX_SHOWN = 100;

/** Command `postern deliveries list` */
export const deliveriesListCommand = defineCliCommand({
  args: {
    status: {
      type: "enum",
      options: [...DELIVERY_STATUSES],
      valueHint: "status",
      description: `Only those that are ${DELIVERY_STATUSES.join(", ")} (default: all)`,
    },
  },
  example: "postern deliveries list --status held",
  run: (context, { status }) =>
    withGateway(context, async (gateway) => {
      const { data, has_more } = await gateway.call("GET /v1/deliveries", { query: { limit: MAX_SHOWN, status } });
      const rows = data.map(({ id, status, channel, sender, accepted_at, attempts, last_error }) => [
        id,
        status,
        channel,
        sender ?? "",
        accepted_at,
        String(attempts),
        last_error ?? "",
      ]);
      const head = ["ID", "STATUS", "CHANNEL", "SENDER", "ACCEPTED", "ATTEMPTS", "WHY"];
      const none = status === undefined ? "No reply is kept for a reply_url" : "There is no such delivery";
      context.print(data, rows.length === 0 ? none : toTable(head, rows, context.io.columns));
      if (has_more) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
    }),
});

/** Command `postern deliveries release <id>` */
export const deliveriesReleaseCommand = defineCliCommand({
  args: { id: ID },
  example: "postern deliveries release run_0123456789",
  run: (context, { id }) => resolve(context, id, "release"),
});

/** Command `postern deliveries drop <id>` */
export const deliveriesDropCommand = defineCliCommand({
  args: { id: ID },
  example: "postern deliveries drop run_0123456789",
  run: (context, { id }) => resolve(context, id, "drop"),
});

function resolve(context: CommandContext, id: string, action: DeliveryAction): Promise<number> {
  return withGateway(context, async (gateway) => {
    const delivery = await gateway.call("POST /v1/deliveries/:id/resolve", { params: { id }, body: { action } });
    context.print(delivery, `${delivery.id}: ${delivery.status}`);
    if (action === "release" && gateway.running === undefined) {
      context.say("No gateway runs: the next one sends it.");
    }
  });
}
