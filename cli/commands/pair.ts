import { CommandError } from "../cli_error.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { reachGateway } from "../reach_gateway.ts";

/** `postern pair`: a new code for one more client; an earlier unused code is void. */
export const pairCommand = defineCliCommand({
  args: {},
  example: "postern pair",
  async run(context) {
    const gateway = await reachGateway(context, { agent: false });
    try {
      if (gateway.running === undefined) {
        throw new CommandError("Cannot pair: no gateway is running; start it with postern gateway");
      }
      const { code, expires_in: seconds } = await gateway.request({ method: "POST", path: "/v1/pairing-code" }) as {
        code: string;
        expires_in: number;
      };
      context.print({ code, expires_in: seconds, address: gateway.running.record.address }, `Pairing code: ${code}`);
      if (!context.flags.json) {
        context.say(`Good once, for ${Math.round(seconds / 60)} minutes, at ${gateway.running.record.address}`);
      }
      return EXIT.ok;
    } finally {
      await gateway.close();
    }
  },
});
