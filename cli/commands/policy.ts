import { systemClock } from "../../lib/base/clock.ts";
import { ToolError } from "../../lib/base/errors.ts";
import { canonicalDigest, type JsonSchema } from "../../lib/base/json.ts";
import { RunTaint } from "../../lib/base/taint.ts";
import type { Config } from "../../lib/config/config.ts";
import { asksAlways } from "../../lib/guard/policy.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { judgeCall, resolveCall, standInOf } from "../../lib/tools/runtime/stand_in.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import type { ForeignInput } from "../../lib/tools/runtime/foreign_input.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import type { ToolInfo } from "../../lib/tools/runtime/tool_executor.ts";
import { createToolPolicy } from "../../lib/tools/runtime/tool_policy.ts";
import { CommandError, defineCliCommand, EXIT } from "../command.ts";
import { commandNotes } from "../doctor/check_containment.ts";
import { expectSuccess, requireControl } from "../reach_gateway.ts";
import { printable, toTable } from "../terminal/terminal_text.ts";
import { findTool, INPUT_ARG, readInput } from "./tools.ts";

/**
 * Command `postern policy explain`: the decision that a call would get under the present configuration, the rules that lead to it,
 * and the smallest change that flips it.
 *
 * Runs nothing, and needs no gateway and no data directory. Only the tools of others must be asked of the running gateway.
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
      description: "Judge it as in a run that has read content from outside, as a web page",
    },
  },
  example: `postern policy explain read_file --input '{"path": "README.md"}'`,
  async run(context, { tool: name, input, outside }) {
    const { config, dataDir, workspace, ownPaths } = await context.loadConfig();
    const record = await readControlFile(dataDir);
    const call = await findCall({ name, input: await readInput(input ?? "{}", context.io) }, { config, record });
    const { tool } = call;
    const running = context.flags.workspace === undefined ? record : undefined;
    const policy = createToolPolicy({
      config: () => config,
      workspaceRoot: running?.workspace ?? workspace,
      home: context.io.home,
      ownPaths,
    });
    const run = new RunTaint(outside === true ? ["a page"] : []);
    const judged = judgeCall(call, policy, run);
    if (judged.kind === "bad_input") {
      const { error } = judged;
      const hint = input === undefined ? "; give the call's input with --input" : "";
      if (error instanceof ToolError) throw new CommandError(error.message + hint, { cause: error });
      throw error;
    }
    const { decision: { kind, reason, rule, path, change }, access, prepared } = judged;
    const startsPrograms = prepared !== undefined &&
      (prepared.effects.command !== undefined || tool.needs.includes("git"));
    const notes = startsPrograms ? await commandNotes(config) : [];
    const rules = toTable(["RULE", "SAYS"], path.map((step) => [step.rule, step.says]), context.io.columns);
    const changes = change.length === 0 ? "" : `\n\nWhat flips it\n${change.map((edit) => `  ${edit}`).join("\n")}`;
    context.print(
      { tool: tool.name, access, decision: kind, rule, reason, path, change, notes },
      printable([kind, reason, "", rules + changes, ...notes.flatMap((note) => ["", note])].join("\n")),
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

/** Part of the running gateway that is asked for tools. */
interface Asked {
  readonly config: Config;
  /** undefined: no gateway runs */
  readonly record: ControlRecord | undefined;
}

/** Finds the call that is judged: that of a plugin's tool where `wasm_tool_exec` stands for it. @throws {UsageError} {CommandError} */
async function findCall({ name, input }: { readonly name: string; readonly input: string }, asked: Asked) {
  const tool = await runningTool(name, asked) ?? findTool(BUILTIN_TOOLS, name);
  const named = standInOf(tool, input)?.tool;
  const other = named === undefined ? undefined : await runningTool(named, asked);
  const found = resolveCall({ name, input }, {
    resolve: ({ name: wanted }) =>
      wanted === name
        ? tool
        : other ?? { reason: `Cannot explain the call: no running gateway has the tool "${wanted}"` },
  });
  if ("reason" in found) throw new CommandError(found.reason);
  return found;
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
