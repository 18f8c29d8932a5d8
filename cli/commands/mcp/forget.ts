import { defineCliCommand, EXIT } from "../../command.ts";
import { withGateway } from "../../reach_gateway.ts";

/** Command `postern mcp forget <name>`: removes what is kept of a server that left the configuration. */
export const mcpForgetCommand = defineCliCommand({
  args: {
    name: { type: "positional", required: true, description: "Name that the server had, as in [mcp.servers.<name>]" },
  },
  example: "postern mcp forget memory",
  async run(context, { name }) {
    await withGateway(context, async (gateway) => {
      const path = `/v1/mcp-records/${encodeURIComponent(name)}`;
      await gateway.request({ method: "DELETE", path });
      context.print({ name, forgotten: true }, `Forgot ${name}: a server of this name is seen for the first time`);
    });
    return EXIT.ok;
  },
});
