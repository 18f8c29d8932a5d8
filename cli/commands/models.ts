import type { StatusReply } from "../../handlers/status.ts";
import type { ModelEntry } from "../../lib/base/records/model.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { reachGateway } from "../reach_gateway.ts";
import { harmless } from "../terminal_text.ts";
import { toTable } from "../to_table.ts";

/** `postern models`: what the configured providers really serve. */
export const modelsCommand = defineCliCommand({
  args: {},
  example: "postern models",
  async run(context) {
    const gateway = await reachGateway(context, { agent: true });
    try {
      const { data } = await gateway.request({ method: "GET", path: "/v1/models" }) as { data: readonly ModelEntry[] };
      const { provider } = await gateway.request({ method: "GET", path: "/v1/status" }) as StatusReply;
      const inUse = provider === null ? "" : `\nIn use: ${provider.name}/${provider.model}, since ${provider.reason}`;
      const models = data.length === 0
        ? "No model can be used: no provider answers; see [provider] in postern.toml"
        : toTable(["MODEL", "PROVIDER"], data.map((model) => [model.id, model.owned_by]));
      context.print(data, harmless(`${models}${inUse}`));
      return EXIT.ok;
    } finally {
      await gateway.close();
    }
  },
});
