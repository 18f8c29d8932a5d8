import { bindFlags, bindKeys } from "../serve/listen_address.ts";
import { defineCliCommand, EXIT } from "../command.ts";
import { runGateway } from "../serve/run_gateway.ts";

/**
 * Command `postern gateway`: runs until SIGINT or SIGTERM, then drains. A second signal ends it at once.
 * Source: docs/design/http.md "Drain"
 */
export const gatewayCommand = defineCliCommand({
  args: {
    ...bindFlags,
    "new-pairing": { type: "boolean", description: "Revoke every token and print a fresh pairing code" },
    agent: { type: "boolean", default: true, negativeDescription: "Serve without an agent: chat answers 503" },
  },
  example: "postern gateway --port 8080",
  async run(context, args) {
    const load = () => context.loadConfig(bindKeys(args));
    const newPairing = args["new-pairing"] === true;
    await runGateway(context, { loaded: await load(), reload: load, agent: args.agent, newPairing, banner: true });
    return EXIT.ok;
  },
});
