import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { ToolError } from "../../lib/base/errors.ts";
import { canonicalDigest, type JsonSchema } from "../../lib/base/json.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { RunTaint } from "../../lib/base/taint.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { Config } from "../../lib/config/config.ts";
import { loadConfig, type LoadedConfig } from "../../lib/config/load_config.ts";
import { asksAlways } from "../../lib/guard/policy.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { Processes } from "../../lib/system/process/processes.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { createToolExecutor } from "../../lib/tools/runtime/create_tool_executor.ts";
import type { ForeignInput } from "../../lib/tools/runtime/foreign_input.ts";
import { onlyLooking } from "../../lib/tools/runtime/look_ahead.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import { realCallOf } from "../../lib/tools/runtime/resolve_call.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import type { Judgement } from "../../lib/tools/runtime/tool_policy.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../command.ts";
import { commandNotes } from "../doctor/check_containment.ts";
import { expectSuccess, requireControl } from "../reach_gateway.ts";
import { configWriterOf } from "../serve/config_writer.ts";
import { printable, toTable } from "../terminal/terminal_text.ts";
import { findTool, INPUT_ARG, readInput } from "./tools.ts";

/**
 * Command `postern policy explain`: what the door would do with a call under the present configuration, the rules that lead to it, and the
 * smallest change that flips it.
 *
 * The call takes the steps that every call takes, up to its first effect. What only the network, another program or the running gateway
 * can say is `unknown`. Needs no gateway and no data directory. Only the tools of others must be asked of the running gateway.
 * The workspace is that of the running gateway, if there is one and --workspace names no other.
 *
 * Exit code 0 whatever the decision, 1 for an input that the tool does not accept.
 */
export const policyExplainCommand = defineCliCommand({
  args: {
    tool: { type: "positional", required: true, description: "Name of the tool, from postern tool list" },
    input: INPUT_ARG,
    outside: {
      type: "boolean",
      description: "Judge it as in a run that has read content from outside, such as a web page",
    },
  },
  example: `postern policy explain read_file --input '{"path": "README.md"}'`,
  async run(context, { tool: name, input, outside }) {
    const text = await readInput(input ?? "{}", context.io);
    const { config, tool, judged } = await explainCall(context, { name, text, outside: outside === true });
    if (judged.kind === "bad_input") {
      const { error } = judged;
      const hint = input === undefined ? "; give the call's input with --input" : "";
      if (error instanceof ToolError) throw new CommandError(error.message + hint, { cause: error });
      throw error;
    }
    const { decision: { kind, reason, rule, path, change }, access, prepared, unknown } = judged;
    const startsPrograms = prepared !== undefined &&
      (prepared.effects.command !== undefined || tool.needs.includes("git"));
    const notes = startsPrograms ? await commandNotes(config) : [];
    const rules = toTable(["RULE", "SAYS"], path.map((step) => [step.rule, step.says]), context.io.columns);
    const changes = change.length === 0 ? "" : `\n\nWhat flips it\n${change.map((edit) => `  ${edit}`).join("\n")}`;
    const decision = unknown === undefined ? kind : "unknown";
    const head = unknown === undefined ? kind : `unknown: ${unknown}`;
    context.print(
      { tool: tool.name, access, decision, unknown: unknown ?? null, rule, reason, path, change, notes },
      printable([head, reason, "", rules + changes, ...notes.flatMap((note) => ["", note])].join("\n")),
    );
    if (!matchesPatterns(name, config.agent.tools)) {
      context.say(`The agent does not get the tool "${name}": [agent] tools does not name it; add it there`);
    }
    if (kind === "ask" && !asksAlways(rule)) {
      context.say("A remembered answer counts before anybody is asked: see postern approval rules");
    }
    return EXIT.ok;
  },
});

/**
 * Returns what the door would do with a call under the present configuration. Has no effect.
 * @param call.outside judges it as in a run that has read content from outside
 * @throws {UsageError} {CommandError} there is no such tool
 */
export async function explainCall(
  context: CommandContext,
  { name, text, outside }: { readonly name: string; readonly text: string; readonly outside: boolean },
): Promise<{ readonly config: Config; readonly tool: Tool; readonly judged: Judgement }> {
  const { loaded, record } = await loadRunning(context);
  const { config } = loaded;
  const { tool, foreign } = await findTools({ name, input: text }, { config, record });
  const run = new RunTaint(outside ? ["a page"] : []);
  const judged = await explain({ name, text, run }, { loaded, foreign, record }, context);
  if (judged === undefined) throw new TypeError(`The tool "${name}" is found, and not known`);
  return { config, tool, judged };
}

/**
 * Loads the configuration with the workspace of the running gateway, whose own rules narrow it, unless --workspace names another.
 * @returns `record` undefined: no gateway runs
 */
export async function loadRunning(
  context: CommandContext,
): Promise<{ readonly loaded: LoadedConfig; readonly record: ControlRecord | undefined }> {
  const loaded = await context.loadConfig();
  const record = await readControlFile(loaded.dataDir);
  const { loadOptions, flags } = context;
  if (record === undefined || flags.workspace !== undefined || record.workspace === loaded.workspace) {
    return { loaded, record };
  }
  const running = { ...loadOptions.flags, workspace: record.workspace };
  return { loaded: await loadConfig({ ...loadOptions, flags: running }), record };
}

/** Part of the running gateway that is asked for tools. */
interface Asked {
  readonly config: Config;
  /** undefined: no gateway runs */
  readonly record: ControlRecord | undefined;
}

/**
 * Finds the tool of a call, and the tools of others that it is about: that of a plugin, where `wasm_tool_exec` stands for it.
 * @throws {UsageError} {CommandError}
 */
async function findTools(
  { name, input }: { readonly name: string; readonly input: string },
  asked: Asked,
): Promise<{ readonly tool: Tool; readonly foreign: readonly Tool[] }> {
  const own = await runningTool(name, asked);
  const tool = own ?? findTool(BUILTIN_TOOLS, name);
  const named = realCallOf(tool, input)?.tool;
  if (named === undefined) return { tool, foreign: own === undefined ? [] : [own] };
  const other = await runningTool(named, asked);
  if (other !== undefined) return { tool: other, foreign: [other] };
  throw new CommandError(`Cannot explain the call: no running gateway has the tool "${named}"`);
}

/** Takes a call through the door of calls, with the services that look at files and programs, and no other: what needs one is not known. */
async function explain(
  { name, text, run }: { readonly name: string; readonly text: string; readonly run: RunTaint },
  { loaded, foreign, record }: Pick<Asked, "record"> & {
    readonly loaded: LoadedConfig;
    readonly foreign: readonly Tool[];
  },
  context: CommandContext,
): Promise<Judgement | undefined> {
  const { config, dataDir, ownPaths, workspace: workspaceRoot } = loaded;
  const { io: { home, env }, loadOptions } = context;
  const [commands, redactor, clock] = [createCommandLookup(), createRedactor(), systemClock];
  const processes = new Processes({
    ...{ commands, clock, home, ownPaths, marker: `explain-${process.pid}` },
    ...{ quarantine: { folder: join(dataDir, "quarantine") }, notes: join(dataDir, "commands") },
    relays: {
      folder: join(dataDir, "relays"),
      allowlist: () => config.url_access.domain_allowlist,
      create: () => Promise.reject(new TypeError("A door that is looked at opened a relay")),
    },
  });
  const known = { commands, processes, redactor, files: createFiles({ clock, home, ownPaths }) };
  const door = createToolExecutor({
    tools: BUILTIN_TOOLS,
    foreign: () => foreign,
    writesConfig: await configWriterOf(loaded, { loadOptions, reload: context.loadConfig }) !== undefined,
    // A running gateway has an environment of its own
    services: onlyLooking(record === undefined ? { ...known, environment: (key) => env[key] } : known, [
      ...BUILTIN_TOOLS,
      ...foreign,
    ]),
    ...{ config: () => config, workspaceRoot, home, ownPaths, clock, log: SILENT, metrics: createMetrics() },
    redact: redactor.redact,
    audit: () => Promise.resolve(false),
  });
  const { signal } = new AbortController();
  return await door.explain(name, text, { run, signal }).finally(() => processes.close());
}

/** Asks the running gateway for a tool of others. Undefined for a built-in tool, and where no gateway has it. */
async function runningTool(name: string, { config, record }: Asked): Promise<Tool | undefined> {
  if (record === undefined || BUILTIN_TOOLS.some((tool) => tool.name === name)) return undefined;
  return await runningNodeTool(name, { config, record }) ?? await runningForeignTool(name, record);
}

/** Asks the running gateway for a tool of a plugin, an MCP server or its program, to judge a call of it. The tool cannot be called. */
async function runningForeignTool(name: string, record: ControlRecord): Promise<Tool | undefined> {
  const info = await askForTool(name, record);
  if (info === undefined) return undefined;
  const { access, enabled, reason, source, description, origin } = info;
  const { schema, read } = await inputOf(info);
  const run = () => Promise.reject(new Error("A tool that is judged alone was called"));
  return {
    ...{
      name,
      description,
      access,
      source,
      enabledBy: undefined,
      local: true,
      needs: [],
      inputSchema: schema,
      execute: run,
    },
    origin: origin ?? undefined,
    enabled: () => enabled,
    wayOn: () => reason?.replace(/^it is off; /, "") ?? "",
    prepare(text) {
      const input = read(text);
      return { input, digest: canonicalDigest(input), access, effects: {}, run };
    },
  };
}

/** Returns the reader of a foreign tool's input: the one that the gateway reads it with. */
async function inputOf({ name, source, input_schema: schema }: ToolInfo): Promise<ForeignInput> {
  if (source === "mcp" || source === "program") {
    const { createMcpInput } = await import("../../lib/extensions/mcp/mcp_tool.ts");
    // The schema came as JSON
    return createMcpInput(name, (schema ?? {}) as JsonSchema);
  }
  const { createForeignInput } = await import("../../lib/tools/runtime/foreign_input.ts");
  return createForeignInput(name, schema);
}

/** Asks the running gateway for what it says of a tool. Undefined for one that it does not know. */
async function askForTool(name: string, record: ControlRecord): Promise<ToolInfo | undefined> {
  requireControl(record);
  const client = createGatewayClient({ ...record, clock: systemClock, timeoutMs: TIMEOUT_MS });
  const reply = await client.request({ method: "GET", path: `/v1/tools/${encodeURIComponent(name)}` });
  // The reply of GET /v1/tools/:name; tests hold each route to its schema
  return reply.status === 404 ? undefined : expectSuccess(reply) as ToolInfo;
}

const NODE_TOOL = /^node__((?:(?!__).)+)__(.+)$/;
const TIMEOUT_MS = 5_000;

/**
 * Asks the running gateway for a node's tool, to judge a call of it. The tool cannot be called, and its access comes from the
 * configuration.
 * @returns undefined for a name that belongs to no node, or that the gateway does not know
 * @throws {CommandError} {GatewayClientError} the gateway cannot be asked
 */
export async function runningNodeTool(
  name: string,
  { config, record }: { readonly config: Config; readonly record: ControlRecord },
): Promise<Tool | undefined> {
  const [, nodeId, tool] = NODE_TOOL.exec(name) ?? [];
  if (nodeId === undefined || tool === undefined) return undefined;
  const info = await askForTool(name, record);
  if (info === undefined) return undefined;
  const { description, access, enabled, input_schema } = info;
  const { createNodeTool } = await import("../../lib/extensions/nodes/known_node.ts");
  return createNodeTool({
    nodeId,
    // The schema came as JSON, and the type of an offer is read-only
    offer: {
      name: tool,
      description,
      access,
      ...(input_schema === undefined ? {} : { input_schema: input_schema as never }),
    },
    access: () => config.tools[name]?.access || "network",
    connected: () => enabled,
    call: () => Promise.reject(new Error("A tool that is judged alone was called")),
  });
}
