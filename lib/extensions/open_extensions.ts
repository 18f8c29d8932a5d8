import type { RecordCipher } from "../storage/record_cipher.ts";
import type { RecordKeyName } from "../storage/record_keys.ts";
import { closeMade, lazily, lazyService } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Redactor } from "../base/redact.ts";
import { pluginFolders, skillFolders } from "../config/folders.ts";
import { isAnyFolder } from "../system/files/appearing_folder.ts";
import { joinTools, type LateTools, openLateTools } from "../tools/late_tools.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { McpReader } from "../tools/mcp/mcp_reader.ts";
import type { WasmModules } from "../tools/wasm/wasm_modules.ts";
import type { McpOperator, McpOperatorOptions } from "./mcp/mcp_operator.ts";
import type { InstructionsOptions, WorkspaceInstructions } from "./instructions/workspace_instructions.ts";
import { LateMcpServers } from "./late_mcp_servers.ts";
import type { McpSignIn } from "./mcp/oauth/sign_in.ts";
import type { SessionServices } from "./mcp/open_session.ts";
import type { ConfiguredNodesOptions, Nodes } from "./nodes/nodes.ts";
import type { SharedNodes, SharedNodesOptions } from "./nodes/shared_nodes.ts";
import type { PluginServices, PluginServicesOptions } from "./plugins/plugin_services.ts";
import type { ToolModulesOptions } from "./plugins/wasm/tool_modules.ts";
import type { SkillOffer, Skills, SkillsOptions } from "./skills/skills.ts";

/** Other people's tools, each kind loaded when there is one of it. */
export interface Extensions {
  /** Returns the tools of all kinds. The same array until they change. */
  tools(): readonly Tool[];
  /** Other machines that offer their tools. Undefined while `[gateway.node_control]` is off. */
  readonly nodes: Nodes | undefined;
  readonly plugins: LateTools<PluginServices>;
  /** MCP servers, which follow the configuration. */
  readonly mcp: LateMcpServers;
  /** MCP servers as the operator sees and changes them; loaded at the first call. */
  readonly mcpOperator: () => Promise<McpOperator>;
  /** Prompts and resources of MCP servers. */
  readonly mcpReader: McpReader;
  /** Sign-ins of people to MCP servers by `url`. Loaded at its first use. */
  readonly mcpSignIn: LateSignIn;
  /** WASM modules of `[runtime.wasm] tools_dir`. */
  readonly wasmModules: WasmModules;
  readonly skills: LateSkills;
  readonly instructions: LateInstructions;
}

/** Instructions of the workspace, which are loaded when they are asked for, or when a run begins that may be told of them. */
export interface LateInstructions {
  load(): Promise<WorkspaceInstructions>;
  /** Returns the part of the system prompt for a run that begins now; empty: none. */
  offer(): Promise<string>;
}

/** Sign-ins of people to MCP servers, which are loaded at their first use. */
export type LateSignIn = Pick<McpSignIn, "begin" | "complete" | "remove" | "provider" | "credential" | "state">;

/** Skills, which are loaded when they are asked for, or when a run begins and there is a folder of them. */
export interface LateSkills {
  load(): Promise<Skills>;
  /** Returns what a run that begins now is told of skills. */
  offer(): Promise<SkillOffer>;
}

/** Services that extensions are built from. */
/** Gateways that have the same nodes. */
export interface NodesCluster {
  /** Opens the way to the nodes that are connected to others. Undefined: there are no others */
  shareNodes(
    parts: Omit<SharedNodesOptions, "cluster"> & { readonly opened: OpenedList },
  ): SharedNodes | undefined | Promise<SharedNodes>;
}

export interface ExtensionsOptions
  extends
    Omit<ConfiguredNodesOptions, "config" | "shared">,
    Omit<PluginServicesOptions, "redact">,
    Omit<SessionServices, "processes" | "config">,
    Omit<SkillsOptions, "config" | "processes">,
    Omit<InstructionsOptions, "config">,
    Pick<ToolModulesOptions, "workers"> {
  readonly redactor: Pick<Redactor, "replace" | "part" | "redact">;
  /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
  readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher>;
  readonly cluster: NodesCluster;
}

/** Opens the extensions that there are. The others are left for their first use. */
export async function openExtensions(options: ExtensionsOptions): Promise<Extensions> {
  const { config } = options;
  const nodes = config().gateway.node_control.enabled ? await openNodes(options) : undefined;
  const plugins = await openPlugins(options);
  const mcpSignIn = openSignIn(options, (server) => void mcp.now?.accountChanged(server));
  const mcp: LateMcpServers = new LateMcpServers({ ...options, signIn: mcpSignIn });
  await mcp.open();
  return {
    nodes,
    plugins,
    mcp,
    mcpOperator: openMcpOperator({ ...options, signIn: mcpSignIn }, mcp),
    mcpReader: lazyService(async () => {
      const { createServerReader } = await import("./mcp/server_reader.ts");
      return createServerReader(() => mcp.now, (text) => options.redactor.redact(text));
    }, ["prompts", "prompt", "resources", "resource"]),
    mcpSignIn,
    wasmModules: openWasmModules(options),
    skills: openSkills(options),
    instructions: openInstructions(options),
    tools: joinTools([nodes, plugins, mcp].flatMap((owner) => (owner === undefined ? [] : [() => owner.tools()]))),
  };
}

async function openNodes(options: ExtensionsOptions): Promise<Nodes> {
  const { createConfiguredNodes } = await import("./nodes/nodes.ts");
  return createConfiguredNodes({ ...options, shared: await options.cluster.shareNodes(options) });
}

/** Leaves the sign-ins to MCP servers for their first use. @param onAccount told of the server whose account has changed */
function openSignIn(
  { opened, redactor, ...options }: ExtensionsOptions,
  onAccount: (server: string) => void,
): LateSignIn {
  const load = lazily(async () => {
    const { createMcpSignIn } = await import("./mcp/oauth/sign_in.ts");
    // No backup has the file of this key: what a backup holds of sign-ins cannot be opened
    const cipher = () => options.cipherOf("mcp_credentials.key");
    return createMcpSignIn({ ...options, cipher, onTokens: redactor.replace, onAccount });
  });
  opened.own(load, closeMade);
  return lazyService(load, ["begin", "complete", "remove", "provider", "credential", "state"]);
}

/** Leaves the operator's view of MCP servers for its first use. */
function openMcpOperator(
  options: ExtensionsOptions & Pick<McpOperatorOptions, "signIn">,
  mcp: LateMcpServers,
): () => Promise<McpOperator> {
  return lazily(async () => {
    const [{ createMcpOperator }, { ServerSwitches }] = await Promise.all([
      import("./mcp/mcp_operator.ts"),
      import("./mcp/server_switches.ts"),
    ]);
    return await createMcpOperator({ ...options, servers: () => mcp.now, switches: new ServerSwitches(options) });
  });
}

/** Collection of plugins that were installed, enabled or disabled. Its module is not loaded where there is none. */
const PLUGINS = "plugins";

/** Opens the plugins where there are some, and otherwise leaves them for their first use. */
async function openPlugins(options: ExtensionsOptions): Promise<LateTools<PluginServices>> {
  const { store, redactor, config } = options;
  const folders = pluginFolders(config().plugins.user_dir, options);
  return await openLateTools({
    ...options,
    load: async () => {
      const { createPluginServices } = await import("./plugins/plugin_services.ts");
      return await createPluginServices({ ...options, redact: redactor.part });
    },
    isNeeded: async () => await store.count(PLUGINS) > 0,
    folders: Object.values(folders),
    awaited: folders.workspace,
  });
}

/** Leaves the instructions of the workspace for their first use. */
function openInstructions(options: ExtensionsOptions): LateInstructions {
  const load = lazily(async () => {
    const { createWorkspaceInstructions } = await import("./instructions/workspace_instructions.ts");
    return createWorkspaceInstructions(options);
  });
  return {
    load,
    offer: async () => options.config().agent.workspace_instructions ? await (await load()).offer() : "",
  };
}

/** Age of a look for folders that is new enough, in ms. */
const SKILL_LOOK_MS = 1_000;
const NO_SKILLS: SkillOffer = { prompt: "", isAny: false };

/** Leaves the skills for their first use. */
function openSkills({ opened, ...options }: ExtensionsOptions): LateSkills {
  const load = lazily(async () => {
    const { Skills } = await import("./skills/skills.ts");
    return await Skills.open(options);
  });
  opened.own(load, closeMade);
  let lookedAt = -Infinity;
  const isAny = async () => {
    if (load.made() !== undefined) return true;
    if (options.clock.monotonic() - lookedAt < SKILL_LOOK_MS) return false;
    lookedAt = options.clock.monotonic();
    return await isAnyFolder(skillFolders(options.config().skills.dirs, options).map(({ path }) => path));
  };
  return {
    load,
    async offer() {
      try {
        return await isAny() ? await (await load()).offer() : NO_SKILLS;
      } catch (error) {
        // A run without skills is better than none
        options.log.error("The skills cannot be read", { error });
        return NO_SKILLS;
      }
    },
  };
}

/** Leaves the WASM modules of `[runtime.wasm] tools_dir` for their first use. */
function openWasmModules({ redactor, opened, ...services }: ExtensionsOptions): WasmModules {
  const load = lazily(async () => {
    const { createToolModules } = await import("./plugins/wasm/tool_modules.ts");
    return createToolModules({ ...services, redact: redactor.part });
  });
  opened.own(load, closeMade);
  return lazyService(load, ["list", "inspect", "load", "call"]);
}
