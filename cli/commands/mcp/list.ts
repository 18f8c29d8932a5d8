import { exactLine, exactText } from "../../../lib/base/text.ts";
import type { McpServerInfo } from "../../../lib/base/records/extension_views.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../../command.ts";
import { learnTools, type ReachedGateway, withGateway } from "../../reach_gateway.ts";
import { toTable } from "../../terminal/terminal_text.ts";

const NAME = { type: "positional", required: true, description: "Name of the server, from postern mcp list" } as const;

/** Command `postern mcp list`: the configured servers, and why each is off or failed. */
export const mcpListCommand = defineCliCommand({
  args: {},
  example: "postern mcp list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      await learnTools(gateway, context);
      const { data } = await gateway.call("GET /v1/mcp-servers");
      const rows = data.map((server) => [
        ...[server.name, server.transport, server.state, String(server.tools.length)],
        exactLine(server.reason ?? server.last_error?.message ?? nameOf(server)),
      ]);
      const none = "The configuration has no [mcp.servers.<name>]";
      context.print(
        data,
        rows.length === 0 ? none : toTable(["NAME", "TRANSPORT", "STATE", "TOOLS", "ABOUT"], rows, context.io.columns),
      );
      sayWithoutGateway(context, gateway);
    }),
});

/** Command `postern mcp show <name>`: everything about one server. */
export const mcpShowCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp show files",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      await learnTools(gateway, context);
      const server = await gateway.call("GET /v1/mcp-servers/:name", { params: { name } });
      context.print(server, describe(server, context.named));
      sayWithoutGateway(context, gateway);
    }),
});

/** Says that what was shown is what earlier sessions taught, where no gateway runs. */
export function sayWithoutGateway({ say }: Pick<CommandContext, "say">, { running }: ReachedGateway): void {
  if (running !== undefined) return;
  say("No gateway runs: this is what is known of the servers. Start one with postern gateway");
}

/** Command `postern mcp logs <name>`: the end of what a server wrote to its error output and its log. */
export const mcpLogsCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp logs files",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      const { log_tail: log } = await gateway.call("GET /v1/mcp-servers/:name", { params: { name } });
      context.print({ name, log }, log === "" ? `${exactLine(name)} wrote nothing` : exactText(log).trimEnd());
    }),
});

/** Command `postern mcp enable <name>`: lets a server run that was turned off. */
export const mcpEnableCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp enable files",
  run: (context, { name }) => change(context, { name, verb: "enable", done: "Enabled" }),
});

/** Command `postern mcp disable <name>`: ends a server and keeps it from being started. */
export const mcpDisableCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp disable files",
  run: (context, { name }) => change(context, { name, verb: "disable", done: "Disabled" }),
});

/** Command `postern mcp restart <name>`: restarts a server, and fails when that does. */
export const mcpRestartCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern mcp restart files",
  run: (context, { name }) => change(context, { name, verb: "restart", done: "Restarted" }),
});

async function change(
  context: CommandContext,
  { name, verb, done }: {
    readonly name: string;
    readonly verb: "enable" | "disable" | "restart";
    readonly done: string;
  },
): Promise<number> {
  let server: McpServerInfo | undefined;
  await withGateway(context, async (gateway) => {
    server = await gateway.call(`POST /v1/mcp-servers/:name/${verb}`, { params: { name } });
    if (verb === "restart" && server.state === "failed") {
      throw new CommandError(exactLine(server.last_error?.message ?? `Cannot restart ${name}`));
    }
    context.print(server, `${done} ${name}: ${server.state}`);
  });
  return EXIT.ok;
}

function nameOf({ server }: McpServerInfo): string {
  return server === null ? "" : `${server.name} ${server.version}`;
}

/** Returns the sign-in of a person, or what to do for one. Empty where the server wants none. */
function signInOf({ name, sign_in: { state, issuer, scopes, expires_at: end, renewed } }: McpServerInfo): string {
  switch (state) {
    case "none":
      return "";
    case "needed":
      return `needed; run postern mcp login ${name}`;
    case "signed_in": {
      const rights = scopes.length === 0 ? "" : `, scopes ${scopes.join(" ")}`;
      const until = end === null ? "" : `, until ${end}`;
      return `with ${issuer}${rights}${until}${renewed ? ", renewed by itself" : ""}`;
    }
  }
}

/** Returns a server for a person. What the server says of itself is in one line each, with what nobody can see spelled out. */
function describe(server: McpServerInfo, named: CommandContext["named"]): string {
  const {
    name,
    state,
    reason,
    transport,
    era,
    protocol_version: version,
    tools,
    changes,
    left_out: leftOut,
    last_error: failed,
  } = server;
  const facts = [
    ["State", reason === null ? state : `${state}: ${reason}`],
    ["Transport", transport],
    ["Protocol", era === null ? "not negotiated yet" : `${version ?? "unknown"} (${era})`],
    ["Calls itself", nameOf(server)],
    ["Sign-in", named(signInOf(server))],
    ["Rights", server.rights],
    ["Says to models", server.instructions ?? ""],
    ["Last error", failed === null ? "" : `${failed.at} ${failed.code}: ${failed.message}`],
    [
      "Waiting",
      changes.length === 0
        ? ""
        : `${changes.map(({ tool }) => tool).join(", ")}; ${named(`postern mcp changes ${name}`)}`,
    ],
    ["Left out", leftOut.join(". ")],
    ["Tools", tools.length === 0 ? "none is known" : ""],
  ];
  const lines = facts.filter(([title, text]) => text !== "" || (title === "Tools" && tools.length > 0));
  return [
    name,
    ...lines.map(([title = "", text = ""]) => `${title}: ${exactLine(text)}`.trimEnd()),
    ...tools.map(({ tool, description }) => `  ${exactLine(tool)}  ${exactLine(description)}`),
    named(`Its log: postern mcp logs ${name}`),
  ].join("\n");
}
