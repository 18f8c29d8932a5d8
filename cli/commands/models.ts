import type { ModelEntry } from "../../lib/base/records/provider_event.ts";
import { defineCliCommand, EXIT } from "../command.ts";
import { reachGateway, withGateway } from "../reach_gateway.ts";
import { printable, printableLine, toTable } from "../terminal/terminal_text.ts";

/** Command `postern models`: lists the models that the configured providers serve now. */
export const modelsCommand = defineCliCommand({
  args: {},
  example: "postern models",
  async run(context) {
    const gateway = await reachGateway(context, { agent: true });
    try {
      const { data } = await gateway.call("GET /v1/models");
      const { provider } = await gateway.call("GET /v1/status");
      const inUse = provider === null
        ? ""
        : `\nIn use: ${printableLine(`${provider.name}/${provider.model}, since ${provider.reason}`)}`;
      const models = data.length === 0
        ? "No model can be used: no provider answers; see [provider] in postern.toml"
        : toTable(["MODEL", "OWNED BY", "TOOLS"], data.map(toRow), context.io.columns);
      context.print(data, `${models}${inUse}`);
      return EXIT.ok;
    } finally {
      await gateway.close();
    }
  },
});

function toRow({ id, owned_by, supports_tools }: ModelEntry): readonly string[] {
  return [id, owned_by, supports_tools === undefined ? "" : supports_tools ? "yes" : "no"];
}

/** Command `postern models trust`: lets `kind = "auto"` use a model server of this machine that another user runs. */
export const modelsTrustCommand = defineCliCommand({
  args: { address: { type: "positional", required: true, description: "Where it listens, such as 127.0.0.1:11434" } },
  example: "postern models trust 127.0.0.1:11434",
  run: (context, { address }) =>
    withGateway(context, async (gateway) => {
      const trusted = await gateway.call("POST /v1/model-servers", { body: { address } });
      const owner = trusted.uid === null ? "" : ` as long as the user with uid ${trusted.uid} runs it`;
      context.print(trusted, printable(`Trusted ${trusted.origin}${owner}`));
    }),
});
