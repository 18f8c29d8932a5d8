import type { StatusReply } from "../../lib/base/records/gateway_status.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { type CommandContext, EXIT } from "../command.ts";
import { presetOf } from "../presets.ts";
import { askRoute, readGatewayStatus } from "../reach_gateway.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";

type Rows = readonly (readonly [name: string, value: string])[];

/** Number of approvals that are counted */
const MAX_COUNTED = 100;

/** Says what state Postern is in here, and three commands that come next. Starts nothing. @returns exit code 0 */
export async function showOverview(context: CommandContext): Promise<number> {
  const { state, next } = await overviewOf(context);
  const shown = (rows: Rows) =>
    toDefinitions(rows.map(([name, value]) => [name, printableLine(value)]), context.io.columns);
  context.print(
    { version: VERSION, state: Object.fromEntries(state), next: next.map(([command]) => command) },
    context.named(
      [`Postern ${VERSION}`, "", shown(state), "", "Next", shown(next), "", "All commands: postern --help"].join("\n"),
    ),
  );
  return EXIT.ok;
}

async function overviewOf(context: CommandContext): Promise<{ readonly state: Rows; readonly next: Rows }> {
  try {
    return await stateOf(await context.loadConfig());
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const isForeign = error.code === "config_untrusted";
    return {
      state: [["Configuration", error.message.split("\n", 1)[0] ?? ""]],
      next: [
        isForeign
          ? ["postern trust", "accept the postern.toml of this folder, once you have read it"]
          : ["postern config check", "say everything that is wrong in it"],
        ["postern doctor", "check what can be checked without it"],
        ["postern --help", "list all commands"],
      ],
    };
  }
}

async function stateOf(
  { config, file, workspace, dataDir }: LoadedConfig,
): Promise<{ readonly state: Rows; readonly next: Rows }> {
  const record = await readControlFile(dataDir);
  const status = record === undefined ? undefined : await readGatewayStatus(record);
  const waiting = record === undefined || status === undefined ? 0 : await countWaiting(record);
  const calls = waiting === 1 ? "1 tool call" : `${waiting < MAX_COUNTED ? "" : "at least "}${waiting} tool calls`;
  const { kind, model } = config.provider;
  const chat = ["postern chat", "talk to the agent in the terminal"] as const;
  const state: Rows = [
    ["Gateway", record === undefined ? "not running" : `${shownStatus(status)} at ${record.address}`],
    [
      "Model",
      status === undefined
        ? shownModel(kind, model)
        : shownModel(status.provider?.name ?? "none", status.provider?.model ?? ""),
    ],
    ["Folder", record?.workspace ?? workspace],
    ["How far", presetOf(config) ?? "settings of your own"],
    ["Configuration", file?.path ?? "no file, all defaults"],
    ...waiting === 0 ? [] : [["Waiting for you", calls] as const],
  ];
  if (record !== undefined) {
    const pair = ["postern pair", "a code for one more browser or program"] as const;
    return waiting > 0
      ? { state, next: [["postern approval list", "the tool calls that wait for your answer"], chat, pair] }
      : { state, next: [chat, pair, ["postern doctor", "check that everything works"]] };
  }
  const first = file === undefined
    ? ["postern init", "choose a model, a folder, and how far the agent may go"] as const
    : ["postern preset show", "what the agent may do, and how to change it"] as const;
  return { state, next: [first, ["postern gateway", "run the gateway: address, dashboard and pairing code"], chat] };
}

function shownStatus(status: StatusReply | undefined): string {
  return status === undefined ? "not answering" : status.status === "ok" ? "running" : status.status;
}

function shownModel(kind: string, model: string): string {
  if (kind === "auto") return "looked for at the start: a key, a local server, else the offline assistant";
  return model === "" ? kind : `${kind}/${model}`;
}

/** Counts the tool calls that wait for a person. 0 where the gateway does not say */
async function countWaiting({ address, token }: ControlRecord): Promise<number> {
  const client = createGatewayClient({ address, token, clock: systemClock });
  const query = { limit: MAX_COUNTED, status: "pending" };
  const list = await askRoute(client, "GET /v1/approvals", { query }).catch(() => undefined);
  return list?.data.length ?? 0;
}
