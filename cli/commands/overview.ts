import { ConfigError } from "../../lib/base/errors.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { type CommandContext, EXIT } from "../command.ts";
import { presetOf } from "../presets.ts";
import { probeGateway, readGatewayStatus } from "../reach_gateway.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";

/** Facts and commands that `postern` by itself shows in a terminal. */
interface Overview {
  /** Names of facts with their values */
  readonly state: readonly (readonly [name: string, value: string])[];
  /** Commands that fit the state, with what each does */
  readonly next: readonly (readonly [command: string, what: string])[];
}

/** Number of approvals that are counted */
const MAX_COUNTED = 100;

/** Says what state Postern is in here, and three commands that come next. Starts nothing. @returns exit code 0 */
export async function showOverview(context: CommandContext): Promise<number> {
  const { state, next } = await overviewOf(context);
  const { columns } = context.io;
  const rows = (pairs: Overview["state"]) =>
    toDefinitions(pairs.map(([name, value]) => [name, printableLine(value)]), columns);
  context.print(
    { version: VERSION, state: Object.fromEntries(state), next: next.map(([command]) => command) },
    [`Postern ${VERSION}`, "", rows(state), "", "Next", rows(next), "", "All commands: postern --help"].join("\n"),
  );
  return EXIT.ok;
}

async function overviewOf(context: CommandContext): Promise<Overview> {
  let loaded: LoadedConfig;
  try {
    loaded = await context.loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const [first = ""] = error.message.split("\n");
    return {
      state: [["Configuration", first]],
      next: [
        error.code === "config_untrusted"
          ? ["postern trust", "accept the postern.toml of this folder, once you have read it"]
          : ["postern config check", "say everything that is wrong in it"],
        ["postern doctor", "check what can be checked without it"],
        ["postern init --config <file>", "write another one"],
      ],
    };
  }
  const { config, file, workspace, dataDir } = loaded;
  const record = await readControlFile(dataDir);
  const status = record === undefined ? undefined : await readGatewayStatus(record);
  const health = record === undefined ? "silent" : status?.status ?? await probeGateway(record);
  const isRunning = record !== undefined && health !== "silent";
  const waiting = isRunning ? await countWaiting(record) : 0;
  const { kind, model } = config.provider;
  const provider = status?.provider;
  return {
    state: [
      ["Gateway", isRunning ? `${health === "ok" ? "running" : health} at ${record.address}` : "not running"],
      [
        "Model",
        provider === undefined
          ? chosenModel(kind, model)
          : provider === null
          ? "none"
          : chosenModel(provider.name, provider.model),
      ],
      ["Folder", isRunning ? record.workspace : workspace],
      ["How far", presetOf(config) ?? "settings of your own"],
      ["Configuration", file?.path ?? "no file, all defaults"],
      ...waiting === 0 ? [] : [
        [
          "Waiting for you",
          waiting === 1 ? "1 tool call" : `${waiting < MAX_COUNTED ? "" : "at least "}${waiting} tool calls`,
        ] as const,
      ],
    ],
    next: nextCommands({ isRunning, waiting, hasFile: file !== undefined }),
  };
}

function chosenModel(kind: string, model: string): string {
  if (kind === "auto") return "looked for at the start: a key, a local server, else the offline assistant";
  return model === "" ? kind : `${kind}/${model}`;
}

/** Counts the tool calls that wait for a person. 0 where the gateway does not say */
async function countWaiting({ address, token }: ControlRecord): Promise<number> {
  const client = createGatewayClient({ address, token, clock: systemClock });
  const path = `/v1/approvals?limit=${MAX_COUNTED}&status=pending`;
  const reply = await client.request({ method: "GET", path }).catch(() => undefined);
  const { data } = (reply?.body ?? {}) as { readonly data?: unknown };
  return Array.isArray(data) ? data.length : 0;
}

function nextCommands(
  { isRunning, waiting, hasFile }: { readonly isRunning: boolean; readonly waiting: number; readonly hasFile: boolean },
): Overview["next"] {
  const chat = ["postern chat", "talk to the agent in the terminal"] as const;
  if (!isRunning) {
    return [
      hasFile
        ? ["postern preset show", "what the agent may do, and how to change it"]
        : ["postern init", "choose a model, a folder, and how far the agent may go"],
      ["postern gateway", "run the gateway: address, dashboard and pairing code"],
      chat,
    ];
  }
  return [
    ...waiting > 0 ? [["postern approvals list", "the tool calls that wait for your answer"] as const] : [],
    chat,
    ["postern pair", "a code for one more browser or program"] as const,
    ...waiting > 0 ? [] : [["postern doctor", "check that everything works"] as const],
  ];
}
