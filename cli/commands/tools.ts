import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import type { ReplyOf } from "../../handlers/routes.ts";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { nearest } from "../../lib/config/nearest.ts";
import type { McpServerInfo } from "../../lib/base/records/extension_views.ts";
import { type CliIo, type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { learnTools, type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { answerInCall } from "../terminal/answer_in_call.ts";
import { askPerson } from "../terminal/ask_person.ts";
import { offerTool } from "../terminal/offer_tool.ts";
import { printable, toTable } from "../terminal/terminal_text.ts";

/** Definition of the `--input` flag of commands that take a tool's input. */
export const INPUT_ARG = {
  type: "string",
  valueHint: "input",
  description: "JSON, the tool's text form, @file, or - for standard input (default: {})",
} as const;

const TOOL = { type: "positional", required: true, description: "Name of the tool, from postern tool list" } as const;

/** Command `postern tool list`: all tools, and why each is on or off. */
export const toolsListCommand = defineCliCommand({
  args: {},
  example: "postern tool list",
  async run(context) {
    const tools = await askGateway(context, (gateway) => listTools(gateway, context));
    const rows = tools.map((
      { name, access, source, origin, enabled, description, reason },
    ) => [
      name,
      access,
      origin ?? source,
      enabled ? "on" : "off",
      enabled ? firstSentence(description) : (reason ?? ""),
    ]);
    context.print(tools, toTable(["NAME", "ACCESS", "FROM", "STATE", "ABOUT"], rows, context.io.columns));
    return EXIT.ok;
  },
});

/** Command `postern tool show <tool>`: description and input fields of a tool. */
export const toolsShowCommand = defineCliCommand({
  args: { tool: TOOL },
  example: "postern tool show read_file",
  async run(context, { tool: name }) {
    const tool = await readTool(context, name);
    const properties = Object.entries(tool.input_schema?.properties ?? {}).map(([key, schema]) => {
      const needed = tool.input_schema?.required?.includes(key) ? "required" : "optional";
      const about = String(schema["description"] ?? "") + oneOf(schema["enum"]);
      return [`  ${key}`, String(schema["type"] ?? "any"), needed, about];
    });
    const state = tool.enabled ? "on" : `off: ${tool.reason}`;
    const input = properties.length === 0
      ? ""
      : `\n\nInput\n${toTable(["  FIELD", "TYPE", "", "ABOUT"], properties, context.io.columns)}`;
    context.print(
      tool,
      `${tool.name} (${tool.access}, ${tool.origin ?? tool.source}), ${state}\n\n${tool.description}${input}`,
    );
    return EXIT.ok;
  },
});

/** Command `postern tool enable <tool>`: sets the switch of the tool in the configuration. */
export const toolsEnableCommand = switchCommand(true);

/** Command `postern tool disable <tool>`: sets the switch of the tool in the configuration. */
export const toolsDisableCommand = switchCommand(false);

function switchCommand(on: boolean) {
  const verb = on ? "enable" : "disable";
  return defineCliCommand({
    args: { tool: TOOL },
    example: `postern tool ${verb} write_file`,
    async run(context, { tool: name }) {
      const { BUILTIN_TOOLS } = await import("../../lib/tools/builtin.ts");
      const tool = BUILTIN_TOOLS.find((tool) => tool.name === name) ?? await readTool(context, name);
      const enabledBy = "enabledBy" in tool ? tool.enabledBy : undefined;
      const [, section, key] = /^\[([\w.]+)\] (\w+) = true$/.exec(enabledBy ?? "") ?? [];
      if (section === undefined || key === undefined) {
        throw new CommandError(`Cannot ${verb} "${name}": ${noSwitch(tool)}`);
      }
      const { editConfiguration } = await import("../edit_configuration.ts");
      const { setConfigValue } = await import("../../lib/config/edit_config.ts");
      const path = [...section.split("."), key];
      const file = await editConfiguration(context, (text) => setConfigValue(text, path, on));
      const names = BUILTIN_TOOLS.filter((other) => other.enabledBy === enabledBy).map(({ name }) => name);
      context.print(
        { file, key: path.join("."), tools: names },
        `${on ? "Enabled" : "Disabled"} ${names.join(", ")}: set ${path.join(".")} in ${file}`,
      );
      return EXIT.ok;
    },
  });
}

function noSwitch(
  { source, enabledBy, name }: {
    readonly source: string;
    readonly enabledBy?: string | undefined;
    readonly name: string;
  },
): string {
  if (enabledBy !== undefined) return `no single switch does that; set ${enabledBy}`;
  if (source === "builtin") return "it is always on; take it out of the tools of [agent]";
  return `it comes with what offers it; see postern tool show ${name}`;
}

/** Command `postern tool schema <tool>`: JSON Schema of the tool's input, with or without --json. */
export const toolsSchemaCommand = defineCliCommand({
  args: { tool: TOOL },
  example: "postern tool schema read_file",
  async run(context, { tool: name }) {
    const schema = (await readTool(context, name)).input_schema ?? null;
    context.print(schema, JSON.stringify(schema, null, 2));
    return EXIT.ok;
  },
});

/** Finds a tool by its name. @throws {UsageError} an unknown name; with the nearest one */
export function findTool<T extends { readonly name: string }>(tools: readonly T[], name: string): T {
  const tool = tools.find((candidate) => candidate.name === name);
  if (tool !== undefined) return tool;
  const meant = nearest(name, tools.map((candidate) => candidate.name));
  throw new UsageError(
    `Cannot find the tool "${name}": ${meant === undefined ? "see postern tool list" : `did you mean "${meant}"?`}`,
  );
}

/** Asks the gateway for all tools it knows. One that just started here first learns those of MCP servers that it never asked. */
async function listTools(gateway: ReachedGateway, context: CommandContext): Promise<readonly ToolInfo[]> {
  await learnTools(gateway, context);
  // The gateway offers no tool whose input is no object
  return (await gateway.call("GET /v1/tools")).data as readonly ToolInfo[];
}

/** Reaches the gateway for one question. */
async function askGateway<T>(context: CommandContext, ask: (gateway: ReachedGateway) => Promise<T>): Promise<T> {
  const gateway = await reachGateway(context, { agent: false });
  try {
    return await ask(gateway);
  } finally {
    await gateway.close();
  }
}

function readTool(context: CommandContext, name: string): Promise<ToolInfo> {
  return askGateway(context, (gateway) => requireTool(gateway, context, name));
}

/** Finds a tool of the gateway by its name. @throws {UsageError} an unknown name; with the reason why a server of MCP gave no tools */
async function requireTool(gateway: ReachedGateway, context: CommandContext, name: string): Promise<ToolInfo> {
  const tools = await listTools(gateway, context);
  if (name.startsWith("mcp__") && !tools.some((tool) => tool.name === name)) {
    const { data } = await gateway.call("GET /v1/mcp-servers");
    const server = data.find((one) => name.startsWith(`mcp__${one.name}__`));
    if (server !== undefined && server.tools.length === 0) throw new UsageError(noTools(name, server));
  }
  return findTool(tools, name);
}

function noTools(tool: string, { name, reason, sign_in: signIn, last_error: failed }: McpServerInfo): string {
  const why = reason ??
    (signIn.state === "needed"
      ? `sign in with: postern mcp login ${name}`
      : failed?.message ?? `see postern mcp show ${name}`);
  return `Cannot find the tool "${tool}": the MCP server "${name}" gave no tools; ${why}`;
}

function oneOf(values: unknown): string {
  return Array.isArray(values) ? `: one of ${values.join(", ")}` : "";
}

function firstSentence(text: string): string {
  return /^.*?[.](?=\s|$)/s.exec(text)?.[0].replace(/\s+/g, " ").slice(0, -1) ?? text;
}

type CallReply = ReplyOf<"POST /v1/tools/:name/call">;

/**
 * Command `postern tool call`: exit code 0, 1 when the tool fails or the call is denied, 2 for a wrong command line.
 * Source: docs/design/tools.md "The contract of a tool"
 */
export const toolsCallCommand = defineCliCommand({
  args: {
    tool: { type: "positional", required: true, description: "Name of the tool, from postern tool list" },
    input: INPUT_ARG,
    yes: { type: "boolean", description: "Approve the call where the policy would ask" },
    approval: {
      type: "string",
      valueHint: "id",
      description: "Id of an approval that was given for exactly this call",
    },
  },
  example: `postern tool call read_file --input '{"path": "README.md"}'`,
  async run(context, args) {
    const input = toInput(await readInput(args.input ?? "{}", context.io));
    const gateway = await reachGateway(context, { agent: false });
    try {
      return show(context, await callTool(context, gateway, { ...args, input }));
    } finally {
      await gateway.close();
    }
  },
});

/** Tool call that a command makes. */
export interface CommandCall {
  readonly tool: string;
  /** JSON object or the tool's text form */
  readonly input: unknown;
  /** True: the call is approved where the policy would ask. Default false */
  readonly yes?: boolean | undefined;
  /** Id of an approval that was given for exactly this call. Default: none */
  readonly approval?: string | undefined;
}

/** Calls a tool of the gateway, and lets the person at the terminal answer where the policy asks. @throws {UsageError} an unknown tool */
async function callTool(
  context: CommandContext,
  gateway: ReachedGateway,
  { tool, input, yes, approval }: CommandCall,
): Promise<CallReply> {
  const { name, source, turn_on: off } = await requireTool(gateway, context, tool);
  if (off !== null) await offerTool(context, gateway, { tool: name, ...off });
  // The built-in tools for MCP servers stand for those of the servers
  const mayAsk = source === "program" || name === "mcp" || name.startsWith("mcp_");
  const calls = { name, input, approved: yes === true };
  const callWith = (approvalId: string | undefined) =>
    answerInCall(context, gateway, {
      mayAsk,
      call: (requestId) => call(gateway, { ...calls, approvalId, requestId }),
    });
  const reply = await callWith(approval);
  const { approval_id: id } = reply;
  // The person at the terminal may approve the call. Without a terminal the call is denied, and the approval stays open
  if (id === undefined || approval !== undefined) return reply;
  if (!context.io.isTerminal.stderr) return await unanswered(gateway, { ...reply, id });
  switch (await askPerson(context, gateway, { id, inRun: false })) {
    case "approve":
      return await callWith(id);
    case "deny":
      return { output: `Cannot call "${tool}": it was not approved`, is_error: true };
    case undefined:
      return await unanswered(gateway, { ...reply, id });
  }
}

/**
 * Calls a tool for a command of its own, such as `cron_add` for `schedule add`, and prints its words, with --json its data.
 * @throws {CommandError} the tool failed or is off, or nobody approved the call; with its sentence
 */
export async function useTool(
  context: CommandContext,
  gateway: ReachedGateway,
  { toText, toData, ...call }: CommandCall & {
    /** Makes the text from the tool's data. Default: the tool's words */
    readonly toText?: (data: unknown) => string;
    /** Chooses the part of the data that --json prints. Default: all of it */
    readonly toData?: (data: unknown) => unknown;
  },
): Promise<void> {
  const { output, is_error: isError, data } = await callTool(context, gateway, call);
  if (isError) throw new CommandError(output);
  context.print(toData?.(data) ?? data ?? { output }, printable(toText?.(data) ?? output));
}

interface Call {
  readonly name: string;
  readonly input: unknown;
  readonly approved: boolean;
  readonly approvalId: string | undefined;
  readonly requestId: string;
}

async function call(
  gateway: ReachedGateway,
  { name, input, approved, approvalId, requestId }: Call,
): Promise<CallReply> {
  const body = { input, approved, ...(approvalId === undefined ? {} : { approval_id: approvalId }) };
  return await gateway.call("POST /v1/tools/:name/call", {
    params: { name },
    headers: { "x-request-id": requestId },
    body,
  });
}

/** Returns the reply to a call whose approval stays open, with the ways to answer it. */
async function unanswered(gateway: ReachedGateway, reply: CallReply & { readonly id: string }): Promise<CallReply> {
  const { id, ...denied } = reply;
  const { reason, expires_at: until } = await gateway.call("GET /v1/approvals/:id", { params: { id } });
  return {
    ...denied,
    output: `${reason}. --yes approves it at once. A person may approve it as "${id}" until ${until}, with ` +
      `postern approval approve ${id}: then repeat this call with --approval ${id}`,
  };
}

function show({ io, flags, say }: CommandContext, reply: CallReply): number {
  if (flags.json) io.stdout(`${JSON.stringify(reply, null, 2)}\n`);
  else if (reply.is_error) say(printable(reply.output));
  else io.stdout(io.isTerminal.stdout ? `${printable(reply.output)}\n` : withNewline(reply.output));
  return reply.is_error ? EXIT.failed : EXIT.ok;
}

function withNewline(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

/** Returns a JSON object as an object. Anything else is the tool's text form. */
export function toInput(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : text;
  } catch {
    return text;
  }
}

/**
 * Reads the text that `--input` means: the text itself, the content of `@file`, or standard input for `-`.
 * @throws {UsageError} `-` on a terminal
 * @throws {CommandError} a file that cannot be read
 */
export async function readInput(text: string, io: CliIo): Promise<string> {
  if (text === "-") {
    const given = await io.readStdin();
    if (given === undefined) {
      throw new UsageError('Cannot read "--input -": standard input is a terminal; pipe the input in');
    }
    return given;
  }
  if (!text.startsWith("@")) return text;
  const path = resolve(io.cwd, text.slice(1));
  return await readFile(path, "utf8").catch((cause: Error) => {
    throw new CommandError(`Cannot read the input "${path}": ${cause.message}`, { cause });
  });
}
